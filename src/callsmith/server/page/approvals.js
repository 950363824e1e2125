// Questions to a person: calls that need approval, and what MCP servers ask in the middle of a call.

import { ApiError, get, post } from "./api.js";
import { button, el, icon } from "./dom.js";
import { schemaForm } from "./form.js";
import { jsonBlock, parse, shortName } from "./json.js";
import { safeAddress } from "./markdown.js";
import { explain } from "./problems.js";

const WORDS = { approved: "allowed", running: "allowed, and it runs", done: "allowed, and it has run", denied: "denied", expired: "answered too late" };

async function answer(id, decision, say) {
  try {
    await post(`/v1/approvals/${id}`, decision);
    return true;
  } catch (error) {
    if (!(error instanceof ApiError)) say("Error: The server could not be reached. Nothing has been decided: try again.");
    else if (error.status === 409) {
      const now = await get(`/v1/approvals/${id}`).catch(() => null);
      say(`Somebody else has answered this already: ${WORDS[now?.status] || "it is decided"}. Your answer was not used.`);
      return true;
    } else if (error.status === 404) {
      say("This question is no longer open: it was answered too late, or the answer was stopped. Nothing was run.");
      return true;
    } else say(explain(error));
    return false;
  }
}

function card(title, kind, content, actions) {
  const heading = el("p", { class: "question-title" }, icon(kind), el("span", { text: title }));
  const said = el("p", { class: "problem", role: "alert" });
  const element = el("section", { class: "question", "aria-label": title, tabindex: "-1" }, heading, content, el("div", { class: "actions" }, actions), said);
  const controls = () => element.querySelectorAll("button, input, select, textarea");
  return {
    element,
    say: (text) => (said.textContent = text),
    busy(is) {
      for (const control of controls()) control.disabled = is;
    },
    over() {
      element.classList.add("over");
      for (const control of controls()) control.disabled = true;
    },
  };
}

// The question whether a call may run. `schemaOf` gives the parameters of a tool, if they are known.
export function approvalCard(call, schemaOf) {
  const given = parse(call.arguments || "{}") ?? JSON.parse(call.arguments);
  const reason = el("p", { class: "hint", text: call.reason || "This tool can change things: it runs only if you allow it." });
  const shown = el("div", { class: "arguments" }, jsonBlock(call.arguments || "{}"));
  const why = el("input", { type: "text", "aria-label": "Reason for the denial", placeholder: "Reason (the model reads it)" });
  const remember = el("input", { type: "checkbox" });
  const remembering = el("label", { class: "inline" }, remember, `Allow ${shortName(call.name)} in this conversation from now on`);
  let form = null;
  let denies = false;
  const decide = async (decision) => {
    here.busy(true);
    here.say("");
    if (await answer(call.approval, decision, here.say)) here.over();
    else here.busy(false);
  };
  const edit = button("Edit", { name: "edit" }, async () => {
    edit.hidden = true;
    form = schemaForm(await schemaOf(call), given);
    shown.replaceChildren(form.element);
    form.element.querySelector("input, textarea, select")?.focus();
  });
  const allow = button("Allow", { name: "check", kind: "primary" }, () => {
    let changed;
    try {
      changed = form?.read();
    } catch {
      return; // the form says what is wrong
    }
    decide({ approve: true, remember: remember.checked, ...(changed ? { arguments: changed } : {}) });
  });
  const deny = button("Deny", { name: "close", kind: "danger" }, () => {
    if (denies) return decide({ approve: false, reason: why.value });
    denies = true;
    deny.before(why);
    why.focus();
    return undefined;
  });
  why.addEventListener("keydown", (event) => {
    if (event.key === "Enter") deny.click();
  });
  const here = card(`Allow ${shortName(call.name)}?`, "shield", [reason, shown, remembering], [allow, edit, deny]);
  return here;
}

// A question of an MCP server: a form, or an address to open.
export function elicitationCard(asked) {
  const { schema, url } = asked.asks;
  const form = schema ? schemaForm(schema) : null;
  const safe = url && safeAddress(url);
  const link = url && el("p", {}, "It asks you to open ", safe ? el("a", { href: safe, target: "_blank", rel: "noopener noreferrer", text: url }) : url, ".");
  const decide = async (decision) => {
    here.busy(true);
    if (await answer(asked.id, decision, here.say)) {
      here.over();
      here.element.remove();
    } else here.busy(false);
  };
  const send = button(form ? "Send" : "Done", { name: "check", kind: "primary" }, () => {
    let filled = {};
    try {
      filled = form?.read() ?? {};
    } catch {
      return;
    }
    decide({ approve: true, arguments: filled });
  });
  const decline = button("Decline", { name: "close" }, () => decide({ approve: false }));
  const source = (asked.source || "").replace(/^mcp:/, "") || "a tool";
  const here = card(`${source} asks`, "edit", [el("p", { text: asked.reason }), link, form?.element], [send, decline]);
  return here;
}
