// A conversation: its turns out of the store, a turn being answered, and how that is followed through reloads and lost connections.

import { ApiError, events, get, pages, post } from "./api.js";
import { elicitationCard } from "./approvals.js";
import { contentOf } from "./files.js";
import { forLong } from "./memory.js";
import { explain } from "./problems.js";
import { Turn, turnsOf } from "./turn.js";
import { TurnView } from "./transcript.js";

const OPEN = "callsmith.open"; // the answers being given, by conversation
const MOST_REMEMBERED = 100_000; // characters
const LOOK_SECONDS = 1.5; // between two looks whether an MCP server asks something
const wait = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));

function openAnswers() {
  try {
    return JSON.parse(forLong.getItem(OPEN)) || {};
  } catch {
    return {}; // somebody else has written there
  }
}

export function setOpen(conversation, answer) {
  const all = openAnswers();
  if (answer) all[conversation] = answer;
  else delete all[conversation];
  if (!forLong.setItem(OPEN, JSON.stringify(all)) && answer) forLong.setItem(OPEN, JSON.stringify({ [conversation]: { ...answer, files: [], said: answer.said.slice(0, MOST_REMEMBERED) } })); // a browser does not remember much
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
    this.away?.abort(); // a browser has few connections to a server: none may wait for what nobody looks at
    this.away = new AbortController();
    this.id = id;
    this.running = null;
    this.opening = null;
    this.older = null;
    this.loading = false;
    this.generation = {};
    this.views = new Map();
    this.place.replaceChildren();
  }

  // Show a conversation: its end, or the item that is named.
  async open(id, item = null) {
    this.leave(id);
    const opening = this.#load(id, item, this.generation);
    this.opening = opening.catch(() => {}); // nothing is said here before it is known what was said
    await opening;
  }

  async #load(id, item, mine) {
    this.older = pages(`/v1/conversations/${id}/items`);
    this.early = [];
    await this.#showOlder(mine);
    if (mine !== this.generation) return;
    this.#toEnd();
    const left = openAnswers()[id];
    if (left?.id && (await this.#isStored(left))) {
      setOpen(id, null);
      if (mine === this.generation) await this.open(id, item); // perhaps it was stored after its items were asked for
      return;
    }
    if (mine !== this.generation) return;
    if (left?.id) this.#followLeft(left, mine);
    else if (left) this.#showLost(id, left);
    if (item) this.context.tell(() => this.reveal(item));
  }

  // Whether an answer has ended while nobody looked, and so is in the conversation: what has failed is not.
  async #isStored({ id }) {
    const answer = await get(`/v1/responses/${id}`).catch(() => null);
    return ["completed", "incomplete", "cancelled"].includes(answer?.status);
  }

  // Scroll to an item of the conversation, if it has it.
  async reveal(item) {
    const mine = this.generation;
    const find = () => [...this.views.keys()].find((turn) => turn.items.includes(item));
    while (!find() && this.older) {
      if (this.loading) await wait(0.05);
      else await this.#showOlder(mine);
      if (mine !== this.generation) return;
    }
    const { element } = this.views.get(find()) || {};
    if (!element) return;
    for (const other of this.place.querySelectorAll(".found")) other.classList.remove("found");
    element.classList.add("found");
    element.tabIndex = -1;
    element.scrollIntoView();
    element.focus({ preventScroll: true });
  }

  // The id of what was said in a turn, in the conversation; null where the turn has failed and is not in it.
  async itemOf(turn) {
    if (turn.status === "failed") return null;
    if (!turn.items.length && turn.id) turn.items.push((await get(`/v1/responses/${turn.id}/input_items?limit=1`)).data[0].id);
    return turn.items[0] ?? null;
  }

  isFirst(turn) {
    return !this.older && this.views.get(turn)?.element === this.place.firstElementChild;
  }

  // Send what the user says, with files; `request` has the rest: model, instructions, …
  async send(said, files, request) {
    const turn = new Turn(said, files);
    turn.live = true;
    turn.request = request;
    this.#show(turn);
    this.#toEnd();
    const body = { ...request, input: [{ role: "user", content: contentOf(said, files) }], conversation: this.id };
    const asked = { background: true, stream: true, tool_events: true, wait_for_approval: true, explain: true };
    const hangUp = new AbortController();
    this.away.signal.addEventListener("abort", () => turn.id && hangUp.abort());
    await this.#follow(turn, events("/v1/responses", { method: "POST", body: { ...body, ...asked }, signal: hangUp.signal }), this.generation);
  }

  // Take a turn that has failed out of sight.
  forget(turn) {
    this.views.get(turn)?.element.remove();
    this.views.delete(turn);
  }

  async stop() {
    const turn = this.running;
    if (!turn) return;
    turn.stops = true;
    if (turn.id) await this.#cancel(turn); // else when it has begun
  }

  async #cancel(turn) {
    try {
      await post(`/v1/responses/${turn.id}/cancel`);
    } catch (error) {
      if (!(error instanceof ApiError) || error.status >= 500) throw error;
      this.context.announce(explain(error)); // it has ended meanwhile
    }
  }

  // An answer that was being given when the page was left.
  async #followLeft({ id, said, files }, mine) {
    const turn = new Turn(said, files);
    turn.id = id;
    this.#show(turn);
    this.#toEnd();
    await this.#follow(turn, events(`/v1/responses/${id}?stream=true`, { signal: this.away.signal }), mine);
  }

  // What was said and, as far as is known, has not reached the server.
  #showLost(id, { said, files, error }) {
    if ([...this.views.keys()].at(-1)?.said === said) return setOpen(id, null); // it has
    const turn = new Turn(said, files);
    turn.fail(error);
    this.#show(turn);
    this.#toEnd();
  }

  async #follow(turn, stream, mine) {
    const { id: conversation, away } = this;
    this.running = turn;
    this.context.onChange();
    const over = () => mine !== this.generation;
    this.#watchQuestions(turn, over);
    for (let failures = 0; ; failures += 1) {
      try {
        for await (const event of stream) {
          if (over() && turn.id) return;
          failures = 0;
          turn.offline = false;
          const isNew = !turn.id;
          turn.see(event);
          if (isNew && turn.id) setOpen(conversation, { id: turn.id, said: turn.said, files: turn.files });
          if (isNew && turn.id && turn.stops) this.context.tell(() => this.#cancel(turn));
          if (over()) return;
          this.#schedule(turn);
          if (!turn.isOpen) break;
        }
      } catch (error) {
        if (over() && turn.id) return;
        const isFinal = await this.#isFinal(turn, error);
        if (!turn.id) setOpen(conversation, { said: turn.said, files: turn.files, error: turn.error });
        if (over()) return;
        if (isFinal) break;
      }
      if (over()) return;
      if (!turn.isOpen) break;
      turn.offline = true;
      this.#schedule(turn);
      await wait(Math.min(10, 0.5 * 2 ** failures));
      if (over()) return;
      stream = events(`/v1/responses/${turn.id}?stream=true&starting_after=${turn.last}`, { signal: away.signal });
    }
    this.#ended(turn);
  }

  // Whether the turn has come to its end with this error; else it is followed further.
  async #isFinal(turn, error) {
    if (!(error instanceof ApiError)) {
      if (turn.id) return false;
      turn.fail("Error: The server could not be reached, and it is not known whether it has got this. When it runs again, reload the page: if the message is not there, send it again.");
    } else if (error.status === 404) turn.fail(turn.id ? "Error: The server does not know this answer any more: it was deleted, or the server was restarted without --store. Try again." : explain(error));
    else if (turn.id && (error.status >= 500 || error.status === 429)) return false;
    else if (turn.id) return this.#readWhole(turn);
    else turn.fail(explain(error));
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
      turn.fail(explain(error));
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
      const { data } = await get("/v1/approvals?status=pending&limit=100").catch(() => ({}));
      if (!data) continue; // it is not known what is asked
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
    const view = new TurnView(turn, this.context);
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
    if (this.older && this.place.parentElement.scrollTop < 1500) this.context.tell(() => this.#showOlder(this.generation));
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
      if (mine === this.generation) this.loading = false;
    }
  }
}
