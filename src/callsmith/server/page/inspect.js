// A turn for the curious: timeline, exact prompts, grammars, what had to be repaired, and the frames as they came.

import { el, readableSeconds, shortened } from "./dom.js";
import { timeline } from "./transcript.js";
import { spansOf } from "./turn.js";

const MOST_SHOWN = 20_000;

function folded(title, text, open = false) {
  const content = shortened(text, MOST_SHOWN, (part) => el("pre", { tabindex: "0", text: part }));
  return el("details", { class: "fold", open }, el("summary", { text: title }), content);
}

// Whether tools were called, and why: in words.
function decided(decision) {
  if (!decision) return "";
  return `${decision.calls ? "called tools" : "called no tools"}: score ${decision.score}, threshold ${decision.threshold}`;
}

function step(one, number) {
  const about = [readableSeconds(one.seconds || 0), `${one.prompt_tokens ?? "?"} tokens read`, `${one.tokens ?? "?"} written`, decided(one.decision)].filter(Boolean);
  return [
    el("h3", { text: `Step ${number + 1}` }),
    el("p", { class: "hint", text: about.join(" · ") }),
    one.prompt ? folded("Exact prompt", one.prompt) : null,
    one.grammar ? folded("Grammar", one.grammar) : el("p", { class: "hint", text: "No grammar: the model was free." }),
    one.text ? folded("What the model wrote", one.text) : null,
    one.repairs?.length ? folded("Repairs", one.repairs.join("\n"), true) : null,
  ];
}

export function inspectPanel(turn) {
  const facts = [
    ["Response", turn.id],
    ["Model", turn.model],
    ["State", turn.status],
    ["Time", turn.live && turn.seconds ? readableSeconds(turn.seconds) : ""],
    ["Tokens read", turn.usage && `${turn.usage.input_tokens} (${turn.usage.input_tokens_details?.cached_tokens || 0} cached)`],
    ["Tokens written", turn.usage && String(turn.usage.output_tokens)],
    ["Retries", turn.report?.retries ? String(turn.report.retries) : ""],
    ["Taken back", turn.report?.taken_back?.join(", ")],
    ["Decision", decided(turn.report?.decision)],
  ];
  const rows = facts.filter(([, value]) => value).map(([name, value]) => [el("dt", { text: name }), el("dd", { text: value })]);
  const spans = spansOf(turn).map((span) => {
    const tokens = span.step ? `, ${span.step.prompt_tokens} tokens read, ${span.step.tokens} written` : "";
    return el("li", { text: `${span.kind === "model" ? "Model, " : ""}${span.name}: from ${readableSeconds(span.start)}, took ${readableSeconds(span.end - span.start)}${tokens}` });
  });
  const steps = turn.report?.steps || [];
  return [
    el("dl", { class: "facts" }, rows.flat()),
    timeline(turn),
    spans.length ? el("ul", { class: "spans" }, spans) : null,
    ...steps.flatMap(step),
    turn.frames.length ? folded(`Raw frames (${turn.frames.length})`, turn.frames.map((frame) => JSON.stringify(frame)).join("\n")) : null,
  ].filter(Boolean);
}
