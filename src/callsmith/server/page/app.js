// The page as a whole: which conversation is shown, the composer, the drawer, keys of the keyboard.

import { get, getIfThere, onKeyNeeded, post, remove } from "./api.js";
import { askForKeyIn } from "./key.js";
import { Chat, setOpen } from "./chat.js";
import { button, byId, el, icon } from "./dom.js";
import { Attachments, takeDrops } from "./files.js";
import { inspectPanel } from "./inspect.js";
import { NO_CONVERSATION, explain, isOutside } from "./problems.js";
import { excerpt, searchField } from "./search.js";
import { lastSettings, readSettings, rememberSettings, requestFields, settingsPanel } from "./settings.js";
import { telemetryPanel } from "./telemetry.js";
import { Toolbox } from "./tools.js";
import { setUpTheme } from "./theme.js";

const text = byId("composer-text");
const drawer = byId("drawer");
const toolbox = new Toolbox();
const state = { conversations: [], found: null, settings: lastSettings(), opener: null, panel: "", preparing: false };

const announce = (words) => (byId("status").textContent = words);
const chat = new Chat(byId("turns"), {
  announce,
  schemaOf: (call) => toolbox.schemaOf(call),
  inspect: (turn) => showDrawer("Details", () => inspectPanel(turn)),
  mayAskAgain,
  askAgain,
  onChange: showState,
  tell: (work) => tell(work),
  focusQuestion(element) {
    const at = document.activeElement;
    if (at?.matches("input, textarea") && at.value) return; // somebody is writing
    element.focus({ preventScroll: false });
  },
});

const request = () => requestFields(state.settings, toolbox.names);

// Conversations

// The conversation in the address and, where a search has led there, the item that was found.
const inAddress = () => /^#\/c\/([\w-]+)(?:\/([\w-]+))?$/.exec(location.hash)?.slice(1) || [null, null];

async function loadConversations() {
  const found = await getIfThere("/v1/conversations?limit=100");
  if (found) state.conversations = found.data;
  showConversations();
}

// Where a message was asked again, the conversation goes on in a newer version: that one is listed, unless the earlier one was added to since.
function isReplaced(one) {
  const at = state.conversations.findIndex((other) => other.id === one.id);
  return state.conversations.slice(0, Math.max(at, 0)).some((other) => other.metadata?.replaces === one.id);
}

// The earlier versions of a conversation that are listed nowhere, and that no other one goes on from.
function earlierVersions(one) {
  const newer = state.conversations.filter((other) => other.metadata?.replaces === one.metadata?.replaces);
  const earlier = state.conversations.find((other) => other.id === one.metadata?.replaces);
  return earlier && newer.length === 1 && isReplaced(earlier) ? [earlier, ...earlierVersions(earlier)] : [];
}

function showConversations() {
  const listed = state.found || state.conversations.filter((one) => one.id === chat.id || !isReplaced(one));
  const rows = listed.map((one) => {
    const title = one.metadata?.title || "Conversation";
    const current = one.id === chat.id;
    const href = `#/c/${one.id}${one.match ? `/${one.match.item}` : ""}`;
    const link = el("a", { href, title, "aria-current": current ? "page" : null }, el("span", { class: "name", text: title }), isReplaced(one) ? el("span", { class: "excerpt", text: "Earlier version" }) : null, one.match ? excerpt(one.match) : null);
    const forget = button(`Delete "${title}"`, { name: "trash", bare: true, kind: "forget" }, () => deleteConversation(one));
    return el("li", { class: current ? "current" : "" }, link, forget);
  });
  const list = byId("conversations");
  const at = list.contains(document.activeElement) && document.activeElement.getAttribute("href");
  list.replaceChildren(...rows);
  if (at) [...list.querySelectorAll("a")].find((link) => link.getAttribute("href") === at)?.focus({ preventScroll: true }); // the keyboard stays where it was
}

async function deleteConversation(one) {
  const earlier = earlierVersions(state.conversations.find((other) => other.id === one.id) || one);
  const more = earlier.length ? ` and ${earlier.length === 1 ? "its earlier version" : `its ${earlier.length} earlier versions`}` : "";
  if (!confirm(`Delete "${one.metadata?.title || "this conversation"}"${more}?`)) return;
  await tell(async () => {
    for (const { id } of [one, ...earlier]) {
      await remove(`/v1/conversations/${id}`).catch((error) => {
        if (error.status !== 404) throw error; // another tab was quicker
      });
      setOpen(id, null);
      const isLeft = (other) => other.id !== id;
      state.conversations = state.conversations.filter(isLeft);
      state.found &&= state.found.filter(isLeft);
      if (chat.id === id) {
        history.replaceState(null, "", "#/");
        newChat();
      }
    }
    showConversations();
  });
}

// Settings with a model that the server has: it may have been started anew with others.
function withModel(settings) {
  const models = [...byId("model").options].map((option) => option.value);
  return models.length && !models.includes(settings.model) ? { ...settings, model: models[0] } : settings;
}

function newChat() {
  if (inAddress()[0]) history.pushState(null, "", "#/");
  chat.leave(null);
  showProblem("");
  state.settings = withModel(lastSettings());
  closeDrawer();
  toggleSide(false);
  showState();
  showConversations();
  text.focus();
}

async function openConversation(id, item = null) {
  await tell(async () => {
    const conversation = await getIfThere(`/v1/conversations/${id}`);
    if (inAddress()[0] !== id) return; // another one was opened meanwhile
    if (!conversation) {
      history.replaceState(null, "", "#/"); // else nobody gets back behind it
      newChat();
      showProblem(NO_CONVERSATION);
      return;
    }
    state.settings = withModel(readSettings(conversation));
    if (["Tools", "Settings", "Details"].includes(state.panel)) closeDrawer(); // they are of another conversation
    if (!state.conversations.some((one) => one.id === id)) state.conversations.push(conversation);
    const opening = chat.open(id, item);
    showState();
    showConversations();
    await opening;
    showState();
  });
}

const titleOf = (said, files) => (said || files.map((file) => file.name).join(", ")).replace(/\s+/g, " ").trim().slice(0, 60).replace(/[\ud800-\udbff]$/, "");

async function ensureConversation(said, files) {
  if (chat.id) return toFront();
  const title = titleOf(said, files);
  const made = await post("/v1/conversations", { metadata: { title, settings: JSON.stringify(state.settings) } });
  state.conversations.unshift(made);
  chat.leave(made.id);
  history.pushState(null, "", `#/c/${made.id}`);
  showConversations();
}

// The conversation that is added to is listed first.
function toFront() {
  const here = state.conversations.find((one) => one.id === chat.id);
  if (here) state.conversations = [here, ...state.conversations.filter((one) => one !== here)];
  showConversations();
}

const isAsking = () => Boolean(chat.running || state.preparing);

function mayAskAgain() {
  if (isAsking()) announce("An answer is being given. Stop it first (Esc), or wait for it.");
  return !isAsking();
}

// Ask the model what `prepare` brings. Whoever presses twice while that waits for the server asks once; who has gone elsewhere, nothing.
async function ask(prepare) {
  if (isAsking()) return;
  await tell(async () => {
    state.preparing = true;
    let said;
    try {
      const here = chat.id;
      await chat.opening;
      if (chat.id === here && !chat.running) said = await prepare();
    } finally {
      state.preparing = false;
    }
    if (said) await chat.send(...said, request());
  });
}

// Ask a turn anew, perhaps in other words: the conversation goes on from there in a version of its own. The earlier one stays as it is.
async function askAgain(turn, said, files) {
  if (!mayAskAgain()) return;
  await ask(async () => {
    const here = chat.id;
    const before = await chat.itemOf(turn);
    if (chat.id !== here) return null;
    if (before) {
      const { metadata } = await get(`/v1/conversations/${here}`);
      if (chat.id !== here) return null;
      const title = chat.isFirst(turn) ? titleOf(said, files) : metadata.title;
      const from = { conversation: here, before };
      const made = await post("/v1/conversations", { metadata: { ...metadata, title, replaces: here }, from });
      state.conversations.unshift(made);
      if (chat.id !== here) {
        showConversations();
        return null;
      }
      history.pushState(null, "", `#/c/${made.id}`);
      await chat.open(made.id);
      showConversations();
      if (chat.id !== made.id) return null;
    } else chat.forget(turn);
    text.focus();
    return [said, files];
  });
}

async function changeSettings(change) {
  Object.assign(state.settings, change);
  rememberSettings(state.settings);
  showState();
  if (!chat.id) return;
  const here = state.conversations.find((one) => one.id === chat.id);
  const metadata = { ...here?.metadata, settings: JSON.stringify(state.settings) };
  await tell(async () => Object.assign(here || {}, await post(`/v1/conversations/${chat.id}`, { metadata })));
}

// What is said when something goes wrong that has no place of its own.
function showProblem(words) {
  const dismiss = button("Dismiss", { name: "close", bare: true }, () => {
    showProblem("");
    text.focus();
  });
  byId("problem").replaceChildren(...(words ? [el("div", { class: "notice failed" }, icon("alert"), el("span", { text: words }), dismiss)] : []));
}

async function tell(work) {
  try {
    return await work();
  } catch (error) {
    if (!isOutside(error)) throw error;
    showProblem(explain(error));
    return undefined;
  }
}
const stopAnswer = () => tell(() => chat.stop());
const stumble = () => showProblem("Error: Something went wrong in this page. Reload it; your conversations are stored by the server.");
addEventListener("error", stumble);
addEventListener("unhandledrejection", stumble);

// The composer

const send = button("Send", { name: "send", bare: true, kind: "primary round", type: "submit" });
const stop = button("Stop", { name: "stop", bare: true, kind: "primary round", title: "Stop (Esc)" }, stopAnswer);
byId("composer-end").append(send, stop);

function fit() {
  text.style.height = "auto";
  text.style.height = `${Math.min(text.scrollHeight, innerHeight * 0.4)}px`;
}

byId("composer").addEventListener("submit", async (event) => {
  event.preventDefault();
  await attached.reading;
  const said = text.value.trim();
  if ((!said && !attached.files.length) || isAsking()) return;
  showProblem("");
  await ask(async () => {
    text.value = ""; // what is written from now on is the next message
    fit();
    try {
      await ensureConversation(said, attached.files);
    } catch (error) {
      text.value = [said, text.value].filter(Boolean).join("\n");
      fit();
      throw error;
    }
    return [said, attached.take()];
  });
});

const attached = new Attachments({ announce, onRemove: () => text.focus() });
const attach = async (files) => {
  const problems = await attached.add(files);
  showProblem(problems.join(" "));
  text.focus();
};
const chosen = el("input", { type: "file", multiple: true, hidden: true, "aria-label": "Text files" });
chosen.addEventListener("change", async () => {
  await attach(chosen.files);
  chosen.value = ""; // so that the same file can be chosen again
});
byId("attachments").append(attached.element, chosen);
byId("composer-start").append(button("Attach text files", { name: "clip", bare: true }, () => chosen.click()));
takeDrops(byId("main"), attach);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address says which conversation is shown
  text.focus();
});
text.addEventListener("input", fit);
text.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  byId("composer").requestSubmit();
});
addEventListener("keydown", (event) => {
  if (event.key === "Escape" && (drawer.contains(document.activeElement) || (!drawer.hidden && !chat.running))) closeDrawer();
  else if (event.key === "Escape" && chat.running) stopAnswer();
  else if (event.key === "Escape") toggleSide(false);
  else if (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    newChat();
  }
});

// The drawer

async function showDrawer(title, make) {
  state.opener = drawer.hidden ? document.activeElement : state.opener;
  state.panel = title;
  byId("drawer-title").textContent = title;
  byId("drawer-body").replaceChildren(el("p", { class: "hint", text: "Loading…" }));
  drawer.hidden = false;
  byId("drawer-title").focus();
  try {
    const content = await make();
    if (state.panel === title) byId("drawer-body").replaceChildren(...[content].flat().filter(Boolean));
  } catch (error) {
    byId("drawer-body").replaceChildren(el("p", { class: "notice failed", text: explain(error) }));
    if (!isOutside(error)) throw error;
  }
}

function closeDrawer() {
  drawer.hidden = true;
  state.panel = "";
  state.opener?.focus();
}

// On a phone the conversations come over the chat.
function toggleSide(open = !document.body.classList.contains("side-open")) {
  document.body.classList.toggle("side-open", open);
}

byId("drawer-close").append(button("Close", { name: "close", bare: true }, closeDrawer));
byId("head-start").append(button("Conversations", { name: "menu", bare: true }, () => toggleSide()));
byId("head-end").append(
  button("Tools", { name: "tools", bare: true, id: "tools-button" }, () => showDrawer("Tools", () => toolbox.panel(state.settings, changeSettings))),
  button("Settings of this conversation", { name: "sliders", bare: true }, () => showDrawer("Settings", () => settingsPanel(state.settings, changeSettings))),
  button("Telemetry", { name: "chart", bare: true, id: "telemetry-button" }, () => showDrawer("Telemetry", telemetryPanel)),
);
byId("side-top").append(button("New chat", { name: "plus", kind: "wide" }, newChat), searchField({ show: showFound, announce }));
byId("scroller").addEventListener("click", () => toggleSide(false));
byId("conversations").addEventListener("click", () => toggleSide(false));
setUpTheme(byId("side-end"));

// The key

onKeyNeeded(askForKeyIn(byId("key-dialog")));

// What is shown

function showFound(found, words) {
  state.found = found;
  byId("search-hint").textContent = words;
  byId("search-hint").hidden = !words;
  showConversations();
}

function showVersions(here) {
  const newer = state.conversations.find((one) => chat.id && one.metadata?.replaces === chat.id);
  const link = (id, words) => el("a", { href: `#/c/${id}`, text: words });
  const links = [here?.metadata?.replaces && link(here.metadata.replaces, "Show the earlier version"), newer && link(newer.id, "Show the newer version")].filter(Boolean);
  byId("versions").replaceChildren(...links);
  byId("versions").hidden = !links.length;
}

function showState() {
  const busy = Boolean(chat.running);
  for (const one of byId("turns").querySelectorAll(".again")) one.disabled = busy;
  send.hidden = busy;
  stop.hidden = !busy;
  const here = state.conversations.find((one) => one.id === chat.id);
  const title = here?.metadata?.title || (chat.id ? "Conversation" : "New chat");
  showVersions(here);
  byId("title").textContent = title;
  document.title = chat.id ? `${title} · callsmith` : "callsmith";
  const model = byId("model");
  if ([...model.options].some((option) => option.value === state.settings.model)) model.value = state.settings.model;
  byId("empty").hidden = Boolean(chat.id);
  if (!chat.id) showWelcome();
}

const TRIES = ["What can you do with your tools?", "Explain this error message: ", "Write a haiku about anvils."];
const STARTER_TRIES = ["What is 23 * 47 + 5?", "How many kilometres are 26.2 miles?", "What time is it in Tokyo?"];

function showWelcome() {
  const tries = (toolbox.areStarter ? STARTER_TRIES : TRIES).map((words) =>
    button(words.trim(), { kind: "try" }, () => {
      text.value = words;
      fit();
      text.focus();
      if (toolbox.areStarter) byId("composer").requestSubmit();
    }),
  );
  byId("empty").replaceChildren(
    el("img", { src: "/page/icon.svg", alt: "", width: 56, height: 56 }),
    el("h2", { text: "What shall we do?" }),
    el("p", { class: "hint", text: toolbox.summary() }),
    el("div", { class: "tries" }, tries),
  );
}

async function loadModels() {
  const { data } = await get("/v1/models");
  const options = data.map((one) => el("option", { value: one.id, text: one.id }));
  byId("model").replaceChildren(...options);
  if (!data.some((one) => one.id === state.settings.model)) state.settings.model = data[0]?.id || "";
}
byId("model").addEventListener("change", (event) => changeSettings({ model: event.target.value }));

// MCP servers may take a while to start: until then their tools are not known.
async function awaitTools() {
  for (let looks = 0; looks < 30 && toolbox.isStarting; looks += 1) {
    await new Promise((done) => setTimeout(done, 2000));
    await toolbox.load();
    if (!chat.id) showState();
  }
}

async function start() {
  const [id, item] = inAddress();
  showState();
  await tell(async () => {
    await loadModels();
    await Promise.all([toolbox.load(), loadConversations()]);
    byId("tools-button").hidden = !toolbox.isThere;
    byId("store-hint").hidden = (await get("/health")).store_is_lasting !== false;
    byId("telemetry-button").hidden = (await getIfThere("/v1/telemetry?minutes=1")) === null;
    tell(awaitTools);
    if (id && !chat.id) await openConversation(id, item); // somebody may have begun to chat meanwhile
    else showState();
  });
  text.focus();
}
addEventListener("hashchange", () => {
  const [id, item] = inAddress();
  if (id && id !== chat.id) openConversation(id, item);
  else if (id && item) tell(() => chat.reveal(item));
  else if (!id && chat.id) newChat();
});
start();
