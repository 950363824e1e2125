// The dialog that asks for the server's key.

import { currentKey, setKey } from "./api.js";
import { button, el } from "./dom.js";
import { explainMessage } from "./problems.js";

export const askForKeyIn = (dialog) => (why) =>
  new Promise((done) => {
    const key = el("input", { id: "key", type: "password", autocomplete: "off", required: true, placeholder: "sk-callsmith-…" });
    const remember = el("input", { type: "checkbox" });
    const open = button("Open", { kind: "primary", type: "submit" });
    const form = el(
      "form",
      { method: "dialog" },
      el("h2", { id: "key-title", text: "This server wants a key" }),
      el("p", { class: "hint", text: currentKey() ? explainMessage(why) : "Whoever runs it makes one with callsmith keys new NAME." }),
      el("div", { class: "field" }, el("label", { for: "key", text: "Key" }), key),
      el("label", { class: "inline" }, remember, "Remember it in this browser"),
      el("div", { class: "actions" }, open),
    );
    let isGiven = false;
    form.addEventListener("submit", () => {
      isGiven = true;
      setKey(key.value.trim(), remember.checked);
      done();
    });
    dialog.replaceChildren(form);
    dialog.oncancel = (event) => event.preventDefault();
    dialog.onclose = () => isGiven || dialog.showModal(); // pressed twice, Escape closes it all the same
    if (!dialog.open) dialog.showModal();
    key.focus();
  });
