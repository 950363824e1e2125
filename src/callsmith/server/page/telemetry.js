// What was called and how it went, with plots.

import { get } from "./api.js";
import { el, readableSeconds, svg } from "./dom.js";
import { shortName } from "./json.js";

const WIDE = 320;
const HIGH = 72;

function figure(title, latest, content) {
  return el("figure", {}, el("figcaption", {}, el("strong", { text: title }), el("span", { class: "hint", text: latest })), content);
}

// The points in runs without a gap; a point that stands alone is a line to itself, drawn as a dot.
function runs(points) {
  const found = [[]];
  for (const point of points) {
    if (point[1] === null || point[1] === undefined) found.push([]);
    else found.at(-1).push(point);
  }
  return found.filter((run) => run.length).map((run) => (run.length === 1 ? [run[0], run[0]] : run));
}

function line(title, points, words) {
  const known = points.filter(([, value]) => value !== null && value !== undefined);
  if (!known.length) return figure(title, "nothing yet", el("div", { class: "plot none" }));
  const most = Math.max(...known.map(([, value]) => value), 1e-9);
  const first = points[0][0];
  const span = Math.max(points.at(-1)[0] - first, 1);
  const at = ([time, value]) => `${(((time - first) / span) * (WIDE - 8) + 4).toFixed(1)},${(HIGH - 6 - (value / most) * (HIGH - 16)).toFixed(1)}`;
  const latest = words(known.at(-1)[1]);
  const lines = runs(points);
  const drawn = [svg("line", { class: "axis", x1: 0, x2: WIDE, y1: HIGH - 5, y2: HIGH - 5 }), lines.map((points) => svg("polyline", { points: points.map(at).join(" ") }))];
  return figure(title, `now ${latest}, most ${words(most)}`, svg("svg", { class: "plot", viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", role: "img", "aria-label": `${title}: now ${latest}, most ${words(most)}` }, drawn.flat()));
}

function bars(tools) {
  const most = Math.max(...tools.map((tool) => tool.calls), 1);
  return el("div", { class: "bars" }, tools.map((tool) => {
    const share = (part) => Math.max((part / most) * WIDE, part ? 2 : 0);
    const bad = tool.failed + tool.invalid;
    const about = `${shortName(tool.name)}: ${tool.calls} calls, ${tool.failed} failed, ${tool.invalid} invalid`;
    const drawn = svg("svg", { viewBox: `0 0 ${WIDE} 10`, preserveAspectRatio: "none", role: "img", "aria-label": about }, svg("rect", { class: "ok", width: share(tool.calls), height: 10, rx: 3 }), svg("rect", { class: "bad", x: share(tool.calls - bad), width: share(bad), height: 10, rx: 3 }));
    const times = tool.p50 === null || tool.p50 === undefined ? "" : ` · half in ${readableSeconds(tool.p50)}, 95 % in ${readableSeconds(tool.p95)}`;
    return el("div", {}, el("strong", { text: shortName(tool.name) }), el("span", { class: "hint", text: `${tool.calls} ${tool.calls === 1 ? "call" : "calls"}${bad ? `, ${bad} not well` : ""}${times}` }), drawn);
  }));
}

export async function telemetryPanel() {
  const { tools, minutes } = await get("/v1/telemetry?minutes=60");
  const points = (pick) => minutes.map((minute) => [minute.at, pick(minute)]);
  const percent = (value) => `${(100 * value).toFixed(0)} %`;
  const plain = (value) => value.toFixed(value < 10 ? 1 : 0);
  return [
    el("p", { class: "hint", text: "The last hour, minute by minute: your own turns, or those of all callers where your key is an admin's." }),
    el("h3", { text: "Calls per tool" }),
    tools.length ? bars(tools) : el("p", { class: "hint", text: "No tool has been called." }),
    line("Calls a minute", points((minute) => minute.calls), plain),
    line("Invalid calls", points((minute) => (minute.calls ? minute.invalid / minute.calls : null)), percent),
    line("Time to the first token", points((minute) => minute.first_token), readableSeconds),
    line("Tokens a second", points((minute) => minute.tokens_per_second), plain),
  ];
}
