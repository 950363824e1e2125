// The search through the conversations: by their titles, and by what is said in them.

import { get } from "./api.js";
import { el } from "./dom.js";
import { visible } from "./json.js";
import { explain, isOutside } from "./problems.js";

const MOST_FOUND = 50;
const PAUSE = 250; // milliseconds without a key, after which is searched
const onOneLine = (text) => visible(text.replace(/\s+/g, " "));

// What was found: conversations, the latest first, in pages as they come in; until the signal stops it.
async function* find(query, signal) {
  for (let after = ""; ; ) {
    const page = await get(`/v1/conversations?limit=${MOST_FOUND}&query=${encodeURIComponent(query)}${after && `&after=${encodeURIComponent(after)}`}`, signal);
    yield page.data;
    if (!page.has_more) return;
    after = page.last_id;
  }
}

// Where it was found.
export function excerpt({ before, text, after }) {
  return el("span", { class: "excerpt" }, onOneLine(before), el("mark", { text: onOneLine(text) }), onOneLine(after));
}

// A field for the search. `show` gets the conversations found so far and a sentence about them, and null where nothing is searched for.
export function searchField({ show, announce }) {
  const field = el("input", { type: "search", id: "search", placeholder: "Search", maxlength: 200, autocomplete: "off", "aria-label": "Search conversations", "aria-controls": "conversations" });
  let stop = new AbortController();
  const search = async (query, signal) => {
    const found = [];
    try {
      for await (const page of find(query, signal)) {
        found.push(...page);
        show(found.slice(0, MOST_FOUND), "Searching…");
        if (found.length >= MOST_FOUND) break;
      }
      const words = found.length >= MOST_FOUND ? `The latest ${MOST_FOUND} conversations found.` : found.length ? `${found.length} found.` : `No conversation has "${visible(query)}" in its title or in a message.`;
      show(found.slice(0, MOST_FOUND), words);
      announce(words);
    } catch (error) {
      if (signal.aborted) return;
      show(found, explain(error));
      announce(explain(error));
      if (!isOutside(error)) throw error;
    }
  };
  let waiting = 0;
  field.addEventListener("input", () => {
    stop.abort();
    stop = new AbortController();
    clearTimeout(waiting);
    const query = field.value.trim();
    if (!query) show(null, "");
    else waiting = setTimeout(search, PAUSE, query, stop.signal);
  });
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !field.value) return;
    event.stopPropagation();
    event.preventDefault();
    field.value = "";
    field.dispatchEvent(new Event("input"));
  });
  return field;
}
