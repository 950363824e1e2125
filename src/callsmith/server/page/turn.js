// One turn: what the user said, and the blocks of the answer as the events of its stream make them. Knows nothing of elements.

import { asFile } from "./files.js";
import { explainMessage } from "./problems.js";

const OPEN = ["queued", "in_progress"];

export class Turn {
  constructor(said, files = []) {
    this.said = said;
    this.files = files;
    this.items = []; // the ids of its items in the conversation, as far as they are known: first that of what was said
    this.blocks = [];
    this.status = "in_progress";
    this.error = "";
    this.id = "";
    this.model = "";
    this.usage = null;
    this.report = null;
    this.last = -1; // the sequence number of the latest event
    this.seconds = null;
    this.frames = []; // the latest events, for the curious
    this.began = performance.now();
  }

  get isOpen() {
    return OPEN.includes(this.status);
  }

  get calls() {
    return this.blocks.filter((block) => block.kind === "call");
  }

  // Take in an event of the stream.
  see(event) {
    if (event.sequence_number !== undefined) {
      if (event.sequence_number <= this.last) return;
      this.last = event.sequence_number;
    }
    this.frames.push(event);
    if (this.frames.length > 2000) this.frames.shift();
    const { type } = event;
    if (type === "callsmith.event") this.#seeTool(event);
    else if (type === "response.output_item.added") this.#add(event.item);
    else if (type === "response.output_item.done") this.#finish(event.item);
    else if (type === "response.output_text.delta") this.#append(event.item_id, "text", event.delta);
    else if (/^response\.reasoning.*\.delta$/.test(type)) this.#append(event.item_id, "reasoning", event.delta);
    else if (event.response) this.#seeResponse(event.response);
    else if (type === "error") this.fail(explainMessage(event.message || event.error?.message || "the answer broke off", event.code || event.error?.code || "server_error"));
  }

  // Take in an item that is complete, of a stored conversation.
  addItem(item) {
    this.status = "completed";
    this.items.push(item.id);
    this.#add(item);
    this.#finish(item);
  }

  fail(why) {
    this.status = "failed";
    this.error = why;
    this.#end();
  }

  #seeResponse(response) {
    this.id = response.id;
    this.model = response.model;
    this.status = response.status;
    this.error = response.error ? explainMessage(response.error.message, response.error.code) : "";
    this.usage = response.usage || this.usage;
    this.report = response.callsmith || this.report;
    if (response.incomplete_details?.reason === "max_output_tokens") this.error = "The answer was cut off: it had reached its length limit. Write \"go on\" for the rest.";
    if (response.incomplete_details?.reason === "content_filter") this.error = "The model's server has withheld the rest, or declined to answer.";
    if (!this.isOpen) this.#end();
  }

  // Take in a response as a whole, where there is no stream of it any more.
  seeWhole(response) {
    for (const item of response.output) {
      this.#add(item);
      this.#finish(item);
    }
    this.#seeResponse(response);
  }

  #end() {
    this.seconds ??= (performance.now() - this.began) / 1000;
    this.#dropDrafts();
    for (const block of this.blocks) if (["running", "waiting"].includes(block.status)) block.status = "ended";
  }

  #find(id) {
    return this.blocks.find((block) => block.id === id);
  }

  #push(block) {
    this.blocks.push(block);
    return block;
  }

  #append(id, kind, delta) {
    const block = this.#find(id) || this.#push({ kind, id, text: "" });
    if (!block.text) this.#dropDrafts();
    block.text += delta;
  }

  #dropDrafts() {
    this.blocks = this.blocks.filter((block) => block.status !== "writing");
  }

  #newCall(fields) {
    const last = this.blocks.at(-1);
    const goesOn = last?.kind === "call" && !this.calls.some((call) => call.group === last.group && call.output !== undefined);
    return this.#push({ kind: "call", group: goesOn ? last.group : this.blocks.length, arguments: "", label: "", ...fields });
  }

  #add(item) {
    if (this.#find(item.id)) return;
    if (item.type === "message") this.#push({ kind: "text", id: item.id, text: "" });
    else if (item.type === "reasoning") this.#push({ kind: "reasoning", id: item.id, text: "" });
    else if (item.type === "mcp_call" || item.type === "mcp_approval_request") {
      const asked = item.type === "mcp_approval_request" ? item.id : item.approval_request_id;
      const known = (asked && this.calls.find((call) => call.approval === asked)) || this.#takeDraft(item.name) || this.#newCall({});
      known.id = item.id;
      known.name = item.name;
      known.label = item.server_label;
      if (item.arguments) known.arguments = item.arguments;
      known.approval = asked || undefined;
      known.status = item.type === "mcp_call" ? "running" : "waiting";
    }
  }

  #takeDraft(name) {
    const drafts = this.calls.filter((call) => call.status === "writing");
    return drafts.find((call) => call.name === name || call.name.endsWith(name)) || drafts[0];
  }

  #finish(item) {
    const block = this.#find(item.id);
    if (!block) return;
    if (item.type === "message") block.text = item.content.map((part) => part.text ?? part.refusal ?? "").join("");
    else if (item.type === "reasoning") block.text = [...(item.content || []), ...(item.summary || [])].map((part) => part.text).join("\n");
    else if (item.type === "mcp_call") {
      block.arguments = item.arguments;
      const failed = item.error?.content?.map((part) => part.text).join("\n") ?? (item.error ? String(item.error.message || item.error) : "");
      block.status = item.status === "completed" && !failed ? "done" : item.status === "incomplete" ? "ended" : "failed";
      block.output = item.output ?? failed;
    }
  }

  #seeTool({ callsmith: about, item_id: id, at }) {
    const call = id && this.#find(id);
    if (about.event === "call_draft") this.#seeDraft(about, at);
    else if (about.event === "tool_started" && call) {
      call.callId = about.id;
      call.began = at;
    } else if (about.event === "tool_progress") {
      const running = this.calls.find((one) => one.callId === about.id);
      if (running) running.progress = about;
    } else if (about.event === "tool_finished") {
      const over = call || this.calls.find((one) => one.callId === about.id);
      if (over) over.ended = at;
      if (over && about.code === "denied") Object.assign(over, { status: "denied", output: about.content });
    } else if (about.event === "confirmation_needed") {
      const asked = this.calls.find((one) => one.approval === about.id);
      if (asked) Object.assign(asked, { callId: about.call_id, reason: about.reason, expires: about.expires });
    } else if (about.event === "notice") this.#push({ kind: "notice", id: `notice${this.blocks.length}`, text: about.text });
  }

  #seeDraft({ index, name, delta }, at) {
    const drafts = this.calls.filter((call) => call.status === "writing");
    let draft = drafts.find((call) => call.index === index);
    if (draft && !delta) {
      this.#dropDrafts(); // the model begins anew
      draft = undefined;
    }
    draft ??= this.#newCall({ name, index, status: "writing", written: at });
    draft.arguments += delta;
  }
}

// When the model wrote and when tools ran, in seconds since the turn began: as far as it is known.
export function spansOf(turn) {
  const timed = turn.calls.filter((call) => call.began !== undefined && call.ended !== undefined);
  const groups = [...new Set(timed.map((call) => call.group))].map((group) => timed.filter((call) => call.group === group));
  const spans = [];
  let now = 0;
  const takeGroup = () => {
    for (const call of groups.shift()) {
      spans.push({ kind: "tool", name: call.name, start: call.began, end: call.ended });
      now = Math.max(now, call.ended);
    }
  };
  for (const [index, step] of (turn.report?.steps || []).entries()) {
    while (groups.length && groups[0][0].began < now + step.seconds * 0.5) takeGroup(); // they ran before this step
    const end = groups.length && index === 0 ? groups[0][0].began : now + step.seconds;
    spans.push({ kind: "model", name: `step ${index + 1}`, start: Math.max(now, end - step.seconds), end, step });
    now = end;
  }
  while (groups.length) takeGroup();
  return spans.sort((one, other) => one.start - other.start);
}

// The turns of a conversation, out of its items, oldest first.
export function turnsOf(items) {
  const turns = [];
  for (const item of items) {
    if (item.type === "message" && item.role !== "assistant") {
      const parts = typeof item.content === "string" ? [item.content] : item.content.map((part) => part.text ?? "");
      turns.push(new Turn(parts.filter((part) => !asFile(part)).join(""), parts.map(asFile).filter(Boolean)));
      turns.at(-1).status = "completed";
      turns.at(-1).items.push(item.id);
    } else {
      if (!turns.length) turns.push(new Turn(null));
      turns.at(-1).addItem(item);
    }
  }
  for (const turn of turns) for (const call of turn.calls) if (call.status === "waiting") call.status = "unknown";
  return turns;
}
