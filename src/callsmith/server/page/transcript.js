// Turns as elements. A turn is shown again whenever it has changed, and only what has changed is made anew.

import { approvalCard } from "./approvals.js";
import { button, copyButton, el, icon, readableSeconds, shortened, svg } from "./dom.js";
import { Attachments, sentFile } from "./files.js";
import { jsonBlock, parse, resultBlock, shortName, visible } from "./json.js";
import { markdown } from "./markdown.js";
import { spansOf } from "./turn.js";

const MOST_NOTICE = 2000;
const MOST_SAID = 20_000;
const MOST_THOUGHTS = 50_000; // characters that are shown at once
const STATES = {
  writing: "being written",
  waiting: "waits for you",
  running: "runs",
  done: "done",
  failed: "failed",
  denied: "denied",
  ended: "not finished",
  unknown: "was asked about",
};

class TextView {
  constructor(block) {
    this.block = block;
    this.element = el("div", { class: "text" });
    this.shown = "";
    this.cost = 0;
    this.next = 0;
  }

  update(isOpen) {
    const now = performance.now();
    if (this.shown === this.block.text) return;
    if (isOpen && now < this.next) {
      this.later ??= setTimeout(() => {
        this.later = null;
        this.update(isOpen);
      }, this.next - now);
      return;
    }
    this.element.replaceChildren(...markdown(this.block.text));
    this.shown = this.block.text;
    this.next = performance.now() + (performance.now() - now) * 4; // a long text is not made anew for each word
  }
}

class ReasoningView {
  constructor(block) {
    this.block = block;
    this.body = el("div", { class: "thoughts" });
    this.element = el("details", { class: "reasoning" }, el("summary", { text: "Thoughts" }), this.body);
  }

  update() {
    const { text } = this.block;
    if (this.shown === text.length) return;
    this.shown = text.length;
    this.body.replaceChildren(shortened(text, MOST_THOUGHTS, (part) => part));
  }
}

class NoticeView {
  constructor(block) {
    this.element = el("p", { class: "notice" }, icon("alert"), el("span", {}, shortened(visible(block.text), MOST_NOTICE, (part) => part)));
  }

  update() {}
}

class CallView {
  constructor(block, context) {
    this.block = block;
    this.context = context;
    this.state = el("span", { class: "state" });
    this.name = el("strong");
    this.label = el("span", { class: "label" });
    this.preview = el("code", { class: "preview" });
    this.time = el("span", { class: "time" });
    this.body = el("div", { class: "call-body" });
    this.details = el("details", {}, el("summary", {}, this.state, this.name, this.label, this.preview, this.time), this.body);
    this.element = el("div", { class: "call" }, this.details);
    this.key = "";
    this.card = null;
  }

  update() {
    const { block } = this;
    const key = `${block.status}|${block.arguments}|${block.output?.length}|${block.progress?.text}|${block.progress?.current}|${block.ended}|${block.name}|${block.reason}`;
    if (key === this.key) return;
    this.key = key;
    this.element.className = `call ${block.status}`;
    this.state.replaceChildren(el("span", { class: "dot", "aria-hidden": "true" }), el("span", { class: "sr-only", text: STATES[block.status] }));
    this.name.textContent = shortName(block.name);
    this.label.textContent = block.label && block.label !== "python" ? shortName(block.label) : "";
    this.preview.textContent = visible(preview(block.arguments));
    const took = block.ended !== undefined && block.began !== undefined ? readableSeconds(block.ended - block.began) : "";
    this.time.textContent = took || (block.status === "done" ? "" : STATES[block.status]);
    this.#question();
    this.#fill();
  }

  #question() {
    if (this.block.status === "waiting" && !this.card) {
      this.card = approvalCard(this.block, this.context.schemaOf);
      this.element.append(this.card.element);
      this.context.announce(`${shortName(this.block.name)} needs your approval.`);
      this.context.focusQuestion(this.card.element);
    } else if (this.block.status !== "waiting" && this.card) {
      this.card.element.remove();
      this.card = null;
    }
    this.details.hidden = this.block.status === "waiting";
  }

  #fill() {
    const { block } = this;
    const parts = [el("p", { class: "caption", text: "Arguments" }), jsonBlock(block.arguments || "{}")];
    if (block.progress) parts.push(el("p", { class: "hint", text: shortName(progressText(block.progress)) }));
    if (block.output !== undefined) parts.push(el("p", { class: "caption", text: block.status === "done" ? "Result" : "Error" }), ...[resultBlock(block.output)].flat());
    this.body.replaceChildren(...parts);
    if (block.output?.includes("data:image/") || /"type": ?"image"/.test(block.output || "")) this.details.open = true;
  }
}

function preview(text) {
  const value = parse(text || "{}");
  if (value === undefined || value === null || typeof value !== "object") return (text || "").slice(0, 200);
  return Object.entries(value).map(([name, one]) => `${name}: ${JSON.stringify(one)}`).join(", ").slice(0, 200);
}

function progressText({ text, current, total }) {
  const share = total ? `${Math.round((100 * current) / total)} %` : current ?? "";
  return [text, share].filter((part) => part !== "" && part !== null).join(" · ");
}

const VIEWS = { text: TextView, reasoning: ReasoningView, notice: NoticeView, call: CallView };

// What the user has said: with its files, and to be edited and sent again.
class SaidView {
  constructor(turn, context) {
    Object.assign(this, { turn, context });
    this.element = el("div", { class: "said" });
    this.edit = button("Edit this message", { name: "edit", bare: true, kind: "again" }, () => this.#open());
    this.#close();
  }

  #close() {
    const { said, files } = this.turn;
    const bubble = said ? el("div", { class: "bubble" }, shortened(said, MOST_SAID, (part) => part)) : null;
    this.element.classList.remove("editing");
    this.element.replaceChildren(...[this.edit, el("div", { class: "said-parts" }, bubble, files.map(sentFile))]);
  }

  #open() {
    if (!this.context.mayAskAgain()) return;
    const text = el("textarea", { rows: Math.min(12, this.turn.said.split("\n").length + 1), "aria-label": "Edit your message" });
    text.value = this.turn.said;
    const attached = new Attachments({ files: this.turn.files, announce: this.context.announce, onRemove: () => text.focus() });
    const cancel = () => {
      this.#close();
      this.edit.focus();
    };
    const form = el(
      "form",
      { class: "edit" },
      text,
      attached.element,
      this.turn.status === "failed" ? null : el("p", { class: "hint", text: "The conversation goes on from here. What came after is kept as an earlier version." }),
      el("div", { class: "actions" }, button("Send again", { kind: "primary", type: "submit" }), button("Cancel", {}, cancel)),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const said = text.value.trim();
      if (said || attached.files.length) this.context.askAgain(this.turn, said, attached.files);
    });
    form.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        event.stopPropagation();
        cancel();
      } else if (event.target === text && event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        form.requestSubmit();
      }
    });
    this.element.classList.add("editing");
    this.element.replaceChildren(form);
    text.focus();
  }
}

export class TurnView {
  constructor(turn, context) {
    Object.assign(this, { turn, context });
    this.views = new Map();
    this.groups = new Map();
    this.blocks = el("div", { class: "blocks" });
    this.foot = el("div", { class: "foot" });
    this.questions = el("div", { class: "questions" });
    const said = turn.said === null ? null : new SaidView(turn, context).element;
    this.answer = el("div", { class: "answer" }, this.blocks, this.questions, this.foot);
    this.element = el("article", { class: "turn", "aria-label": "A question and its answer" }, said, this.answer);
    this.update();
  }

  update() {
    const { turn } = this;
    const wanted = [];
    for (const block of turn.blocks) {
      let view = this.views.get(block);
      if (!view) {
        view = new VIEWS[block.kind](block, this.context);
        this.views.set(block, view);
      }
      view.update(turn.isOpen);
      if (block.kind !== "call") wanted.push(view.element);
      else {
        const group = this.#group(block.group);
        if (wanted.at(-1) !== group) {
          wanted.push(group);
          group.wanted = [];
        }
        group.wanted.push(view.element);
      }
    }
    for (const group of this.groups.values()) {
      sync(group, group.wanted || []);
      group.classList.toggle("side-by-side", (group.wanted || []).length > 1);
    }
    sync(this.blocks, wanted);
    this.#footer();
  }

  #group(id) {
    if (!this.groups.has(id)) this.groups.set(id, el("div", { class: "calls" }));
    return this.groups.get(id);
  }

  #footer() {
    const { turn } = this;
    const waiting = turn.calls.some((call) => call.status === "waiting");
    const running = turn.calls.some((call) => call.status === "running");
    const key = `${turn.status}|${turn.error}|${turn.offline}|${turn.blocks.length > 0}|${waiting}|${running}`;
    if (key === this.footKey) return;
    this.footKey = key;
    this.element.setAttribute("aria-busy", String(turn.isOpen));
    const parts = [];
    if (turn.offline) parts.push(el("p", { class: "notice" }, icon("alert"), el("span", { text: "The connection is lost. Trying again; nothing is lost." })));
    else if (turn.isOpen && !waiting && !running) parts.push(this.#working());
    if (turn.error) parts.push(el("p", { class: "notice failed" }, icon("alert"), el("span", {}, shortened(visible(turn.error), MOST_NOTICE, (part) => part))));
    if (turn.status === "cancelled") parts.push(el("p", { class: "hint", text: "Stopped." }));
    if (["failed", "cancelled"].includes(turn.status) && turn.said !== null) parts.push(this.#again("Try again", ""));
    if (!turn.isOpen && (turn.blocks.length || turn.id)) parts.push(this.#summary());
    this.foot.replaceChildren(...parts);
  }

  #again(label, kind) {
    return button(label, { name: "retry", kind: `small again ${kind}` }, () => this.context.mayAskAgain() && this.context.askAgain(this.turn, this.turn.said, this.turn.files));
  }

  // A sign of life; after a while with the seconds it has taken so far: a model may have to be loaded, or read much.
  #working() {
    const since = performance.now();
    const words = el("span", { class: "hint" });
    const element = el("span", { class: "working" }, el("span", { class: "dots", role: "img", "aria-label": "The model is working" }, el("i"), el("i"), el("i")), words);
    const count = setInterval(() => {
      const seconds = Math.round((performance.now() - since) / 1000);
      if (!element.isConnected) clearInterval(count);
      else if (seconds >= 4) words.textContent = `${this.turn.blocks.length ? "Working" : "Reading, or loading the model"} · ${readableSeconds(seconds).replace(".0", "")}`;
    }, 1000);
    return element;
  }

  #summary() {
    const { turn } = this;
    const words = [];
    if (turn.seconds && turn.live) words.push(readableSeconds(turn.seconds));
    if (turn.usage) words.push(`${turn.usage.input_tokens} tokens read, ${turn.usage.output_tokens} written`);
    const line = timeline(turn);
    const said = turn.blocks.filter((block) => block.kind === "text").map((block) => block.text).join("\n\n");
    const copy = said && copyButton(said, "quiet");
    const again = turn.said !== null && ["completed", "incomplete"].includes(turn.status) && this.#again("Regenerate", "quiet");
    const inspect = turn.id && button("Details", { kind: "small quiet" }, () => this.context.inspect(turn));
    return el("div", { class: "summary" }, line, words.length ? el("span", { class: "hint", text: words.join(" · ") }) : null, copy || null, again, inspect || null);
  }
}

// When the model wrote and when tools ran, from left to right.
export function timeline(turn) {
  const spans = spansOf(turn);
  if (!spans.length) return null;
  const whole = Math.max(turn.live ? turn.seconds : 0, ...spans.map((span) => span.end), 0.001);
  const tools = spans.filter((span) => span.kind === "tool");
  const bars = spans.map((span) => {
    const width = Math.max(((span.end - span.start) / whole) * 200, 2);
    const lane = tools.indexOf(span);
    const at = lane >= 0 && tools.length > 1 ? { y: 1 + (lane % 3) * 5, height: 4 } : { y: 1, height: 14 };
    const bar = svg("rect", { class: span.kind, x: Math.min((span.start / whole) * 200, 200 - width), width, ...at });
    bar.append(svg("title", { text: `${span.name}: ${readableSeconds(span.end - span.start)}` }));
    return bar;
  });
  const words = spans.map((span) => `${span.name} ${readableSeconds(span.end - span.start)}`).join(", ");
  return svg("svg", { class: "timeline", viewBox: "0 0 200 16", preserveAspectRatio: "none", role: "img", "aria-label": `Timeline: ${words}` }, bars);
}

function sync(parent, wanted) {
  wanted.forEach((element, index) => {
    if (parent.children[index] !== element) parent.insertBefore(element, parent.children[index] || null);
  });
  while (parent.children.length > wanted.length) parent.lastElementChild.remove();
}
