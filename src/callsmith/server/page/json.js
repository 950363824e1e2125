// Arguments and results as people read them: JSON in colours, images as images, the rest as text.

import { el, shortened } from "./dom.js";

const MOST_SHOWN = 6000;
const MOST_COLOURED = 100_000;
const MOST_NESTED = 100;
const TOKEN = /("(?:[^"\\]|\\.)*")(\s*:)?|\b(true|false|null)\b|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

// What is nested deeper is shown as it is: indented it would be large, and too deep to be written at all.
function isDeep(text) {
  let depth = 0;
  for (const [bracket] of text.matchAll(/[[{\]}]/g)) {
    depth += "[{".includes(bracket) ? 1 : -1;
    if (depth > MOST_NESTED) return true;
  }
  return false;
}

// A number of more digits than a browser counts with stays as it is written, where the browser can do that.
const exact = (_, value, about) => (typeof value === "number" && about?.source.length > 15 && JSON.rawJSON ? JSON.rawJSON(about.source) : value);

export function parse(text) {
  try {
    return isDeep(text) ? undefined : JSON.parse(text, exact);
  } catch {
    return undefined;
  }
}

export function pretty(text) {
  const value = parse(text);
  return value !== null && typeof value === "object" ? JSON.stringify(value, null, 2) : text;
}

// Characters that cannot be seen, or that turn the order of others around, as escapes: whoever decides sees what there is.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]|[\u{e0000}-\u{e007f}]/gu;

const MOST_NAME = 200;

// A name that somebody else chose, for a line.
export const shortName = (text) => visible(text.length > MOST_NAME ? `${text.slice(0, MOST_NAME)}…` : text);

export const visible = (text) => text.replace(HIDDEN, (one) => `\\u{${one.codePointAt(0).toString(16)}}`);

function coloured(text) {
  if (text.length > MOST_COLOURED) return [text];
  const nodes = [];
  let last = 0;
  for (const match of text.matchAll(TOKEN)) {
    nodes.push(text.slice(last, match.index));
    const kind = match[1] ? (match[2] ? "key" : "string") : match[3] ? "word" : "number";
    nodes.push(el("span", { class: `json-${kind}`, text: match[1] || match[0] }), match[1] ? match[2] || "" : "");
    last = match.index + match[0].length;
  }
  return [...nodes, text.slice(last)];
}

export const jsonBlock = (text) => shortened(visible(pretty(text)), MOST_SHOWN, (part) => el("pre", { class: "json", tabindex: "0" }, coloured(part)));

const IMAGE = /^data:image\/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=\s]+$/;

function imageOf(value) {
  if (typeof value === "string") return IMAGE.test(value) ? value : "";
  if (value === null || typeof value !== "object") return "";
  const data = value.type === "image" && value.data && `data:${value.mimeType || value.mime_type || "image/png"};base64,${value.data}`;
  return data && IMAGE.test(data) ? data : "";
}

// A result: what images it has, and the rest.
export function resultBlock(text) {
  const value = parse(text) ?? text;
  const parts = Array.isArray(value) ? value : [value];
  const images = parts.map(imageOf).filter(Boolean);
  const rest = parts.filter((part) => !imageOf(part));
  const shown = images.map((source) => el("img", { src: source, alt: "An image the tool has returned", class: "result-image" }));
  if (images.length && !rest.length) return shown;
  const remaining = images.length ? JSON.stringify(rest.length === 1 ? rest[0] : rest) : text;
  const isJson = value !== null && typeof value === "object";
  return [...shown, isJson ? jsonBlock(remaining) : shortened(visible(remaining), MOST_SHOWN, (part) => el("pre", { tabindex: "0", text: part }))];
}
