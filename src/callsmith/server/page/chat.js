// A conversation: its turns out of the store, a turn being answered, and how that is followed through reloads and lost connections.

import { ApiError, events, get, pages, post } from "./api.js";
import { elicitationCard } from "./approvals.js";
import { Turn, turnsOf } from "./turn.js";
import { TurnView } from "./transcript.js";

const OPEN = "callsmith.open"; // the answers being given, by conversation
const LOOK_SECONDS = 1.5; // between two looks whether an MCP server asks something
const wait = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));

function openAnswers() {
  return JSON.parse(localStorage.getItem(OPEN) || "{}");
}

function setOpen(conversation, answer) {
  const all = openAnswers();
  if (answer) all[conversation] = answer;
  else delete all[conversation];
  localStorage.setItem(OPEN, JSON.stringify(all));
}

export class Chat {
  // `place` is the element of the turns; `context` is what they need (schemaOf, announce, inspect), and onChange.
  constructor(place, context) {
    Object.assign(this, { place, context });
    this.leave(null);
    place.parentElement.addEventListener("scroll", () => this.#scrolled());
  }

  // Show nothing, or another conversation from now on.
  leave(id) {
    this.id = id;
    this.running = null;
    this.older = null;
    this.generation = {};
    this.views = new Map();
    this.place.replaceChildren();
  }

  async open(id) {
    this.leave(id);
    const mine = this.generation;
    this.older = pages(`/v1/conversations/${id}/items`);
    this.early = [];
    await this.#showOlder(mine);
    if (mine !== this.generation) return;
    this.#toEnd();
    const left = openAnswers()[id];
    if (left) this.#followLeft(left, mine);
  }

  // Send what the user says; `request` has the rest: model, instructions, …
  async send(text, request) {
    const turn = new Turn(text);
    turn.live = true;
    turn.request = request;
    this.#show(turn);
    this.#toEnd();
    const body = { ...request, input: [{ role: "user", content: text }], conversation: this.id };
    const asked = { background: true, stream: true, tool_events: true, wait_for_approval: true, explain: true };
    await this.#follow(turn, events("/v1/responses", { method: "POST", body: { ...body, ...asked } }), this.generation);
  }

  async retry(turn, request) {
    this.views.get(turn)?.element.remove();
    this.views.delete(turn);
    await this.send(turn.said, request);
  }

  async stop() {
    const turn = this.running;
    if (!turn?.id) return;
    try {
      await post(`/v1/responses/${turn.id}/cancel`);
    } catch (error) {
      this.context.announce(error.message); // it has ended meanwhile
    }
  }

  // An answer that was being given when the page was left.
  async #followLeft({ id, said }, mine) {
    const turn = new Turn(said);
    turn.id = id;
    this.#show(turn);
    this.#toEnd();
    await this.#follow(turn, events(`/v1/responses/${id}?stream=true`), mine);
  }

  async #follow(turn, stream, mine) {
    this.running = turn;
    this.context.onChange();
    const over = () => mine !== this.generation;
    this.#watchQuestions(turn, over);
    for (let failures = 0; ; failures += 1) {
      try {
        for await (const event of stream) {
          if (over()) return;
          failures = 0;
          turn.offline = false;
          const isNew = !turn.id;
          turn.see(event);
          if (isNew && turn.id) setOpen(this.id, { id: turn.id, said: turn.said });
          this.#schedule(turn);
          if (!turn.isOpen) break;
        }
      } catch (error) {
        if (over()) return;
        if (await this.#isFinal(turn, error)) break;
      }
      if (over()) return;
      if (!turn.isOpen) break;
      turn.offline = true;
      this.#schedule(turn);
      await wait(Math.min(10, 0.5 * 2 ** failures));
      if (over()) return;
      stream = events(`/v1/responses/${turn.id}?stream=true&starting_after=${turn.last}`);
    }
    this.#ended(turn);
  }

  // Whether the turn has come to its end with this error; else it is followed further.
  async #isFinal(turn, error) {
    if (!(error instanceof ApiError)) {
      if (turn.id) return false;
      turn.fail("The server could not be reached, and it is not known whether it has got this.");
    } else if (error.status === 404) turn.fail("The server does not know this answer any more.");
    else if (turn.id && (error.status >= 500 || error.status === 429)) return false;
    else if (turn.id) return this.#readWhole(turn);
    else turn.fail(error.message);
    return true;
  }

  // The server was started anew: it has no stream of this answer, but its end.
  async #readWhole(turn) {
    try {
      turn.blocks = [];
      turn.seeWhole(await get(`/v1/responses/${turn.id}`));
      return !turn.isOpen;
    } catch (error) {
      if (!(error instanceof ApiError)) return false;
      turn.fail(error.message);
      return true;
    }
  }

  #ended(turn) {
    turn.offline = false;
    this.running = null;
    // What has failed is not in the conversation: it stays here until it is tried again.
    if (turn.status !== "failed") setOpen(this.id, null);
    this.#update(turn);
    this.context.announce(turn.status === "completed" ? "The answer is complete." : turn.error || "The answer has ended.");
    this.context.onChange();
  }

  async #watchQuestions(turn, over) {
    const shown = new Map();
    while (!over() && turn.isOpen) {
      await wait(LOOK_SECONDS);
      if (!turn.isOpen || !turn.calls.some((call) => call.status === "running")) continue;
      const { data } = await get("/v1/approvals?status=pending&limit=100").catch(() => ({ data: [] }));
      for (const asked of data.filter((one) => one.asks && !shown.has(one.id))) {
        const card = elicitationCard(asked);
        shown.set(asked.id, card);
        this.views.get(turn)?.questions.append(card.element);
        this.context.announce("A tool asks you something.");
        this.context.focusQuestion(card.element);
      }
      for (const [id, card] of shown) if (!data.some((one) => one.id === id)) card.element.remove();
    }
    for (const card of shown.values()) card.element.remove();
  }

  // Of a call that was denied the conversation has only the question: what became of it is asked for.
  async #lookUpDecisions(turns) {
    for (const turn of turns) {
      for (const call of turn.calls.filter((one) => one.status === "unknown")) {
        const asked = await get(`/v1/approvals/${call.approval}`).catch(() => null);
        if (asked?.status === "denied") Object.assign(call, { status: "denied", output: asked.result?.content || "denied" });
        this.views.get(turn)?.update();
      }
    }
  }

  #show(turn) {
    const view = new TurnView(turn, { ...this.context, retry: (one) => this.context.retry(one) });
    this.views.set(turn, view);
    this.place.append(view.element);
    return view;
  }

  #schedule(turn) {
    this.dirty ??= requestAnimationFrame(() => {
      this.dirty = null;
      this.#update(turn);
    });
  }

  #update(turn) {
    const scroller = this.place.parentElement;
    const atEnd = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 80;
    this.views.get(turn)?.update();
    if (atEnd) this.#toEnd();
  }

  #toEnd() {
    const scroller = this.place.parentElement;
    scroller.scrollTop = scroller.scrollHeight;
  }

  #scrolled() {
    if (this.older && this.place.parentElement.scrollTop < 1500) this.#showOlder(this.generation);
  }

  // Put the next page of older turns before those that are shown. Items of a turn that begins on a further page wait for that.
  async #showOlder(mine) {
    if (this.loading || !this.older) return;
    this.loading = true;
    try {
      const { value, done } = await this.older.next();
      if (mine !== this.generation) return;
      if (done) this.older = null;
      const items = [...(value || []).slice().reverse(), ...this.early];
      const first = done ? 0 : items.findIndex((item) => item.type === "message" && item.role !== "assistant");
      this.early = items.slice(0, Math.max(0, first));
      const scroller = this.place.parentElement;
      const made = turnsOf(first < 0 ? [] : items.slice(first)).map((turn) => {
        const view = new TurnView(turn, this.context);
        this.views.set(turn, view);
        return view.element;
      });
      if (first < 0) this.early = items;
      this.#lookUpDecisions([...this.views.keys()].slice(-made.length));
      if (scroller.scrollTop < 1) scroller.scrollTop = 1; // at the very top a browser would not hold what is shown in its place
      this.place.prepend(...made);
      if (!done && (!made.length || scroller.scrollHeight <= scroller.clientHeight)) {
        this.loading = false;
        await this.#showOlder(mine);
      }
    } finally {
      this.loading = false;
    }
  }
}
