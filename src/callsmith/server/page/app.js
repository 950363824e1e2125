// The page as a whole: which conversation is shown, the composer, the drawer, keys of the keyboard.

import { ApiError, get, getIfThere, onKeyNeeded, post, remove } from "./api.js";
import { askForKeyIn } from "./key.js";
import { Chat } from "./chat.js";
import { button, byId, el } from "./dom.js";
import { inspectPanel } from "./inspect.js";
import { lastSettings, readSettings, rememberSettings, requestFields, settingsPanel } from "./settings.js";
import { telemetryPanel } from "./telemetry.js";
import { Toolbox } from "./tools.js";
import { setUpTheme } from "./theme.js";

const text = byId("composer-text");
const drawer = byId("drawer");
const toolbox = new Toolbox();
const state = { conversations: [], settings: lastSettings(), opener: null, panel: "" };

const announce = (words) => (byId("status").textContent = words);
const chat = new Chat(byId("turns"), {
  announce,
  schemaOf: (call) => toolbox.schemaOf(call),
  inspect: (turn) => showDrawer("Details", () => inspectPanel(turn)),
  retry: (turn) => chat.retry(turn, request()),
  onChange: showState,
  focusQuestion(element) {
    if (document.activeElement === text && text.value) return; // somebody is writing
    element.focus({ preventScroll: false });
  },
});

const request = () => requestFields(state.settings, toolbox.names);

// Conversations

const idInAddress = () => /^#\/c\/([\w-]+)$/.exec(location.hash)?.[1] || null;

async function loadConversations() {
  const found = await getIfThere("/v1/conversations?limit=100");
  if (found) state.conversations = found.data;
  showConversations();
}

function showConversations() {
  const rows = state.conversations.map((one) => {
    const title = one.metadata?.title || "Conversation";
    const current = one.id === chat.id;
    const link = el("a", { href: `#/c/${one.id}`, title, "aria-current": current ? "page" : null, text: title });
    const forget = button(`Delete "${title}"`, { name: "trash", bare: true, kind: "forget" }, () => deleteConversation(one));
    return el("li", { class: current ? "current" : "" }, link, forget);
  });
  byId("conversations").replaceChildren(...rows);
}

async function deleteConversation(one) {
  if (!confirm(`Delete "${one.metadata?.title || "this conversation"}"?`)) return;
  await tell(async () => {
    await remove(`/v1/conversations/${one.id}`);
    state.conversations = state.conversations.filter((other) => other.id !== one.id);
    if (chat.id === one.id) newChat();
    showConversations();
  });
}

function newChat() {
  history.pushState(null, "", "#/");
  chat.leave(null);
  state.settings = lastSettings();
  closeDrawer();
  showState();
  showConversations();
  text.focus();
}

async function openConversation(id) {
  await tell(async () => {
    const conversation = await get(`/v1/conversations/${id}`);
    state.settings = readSettings(conversation);
    if (!state.conversations.some((one) => one.id === id)) state.conversations.unshift(conversation);
    const opening = chat.open(id);
    showState();
    showConversations();
    await opening;
    showState();
  });
}

async function ensureConversation(said) {
  if (chat.id) return;
  const title = said.replace(/\s+/g, " ").trim().slice(0, 60);
  const made = await post("/v1/conversations", { metadata: { title, settings: JSON.stringify(state.settings) } });
  state.conversations.unshift(made);
  chat.leave(made.id);
  history.pushState(null, "", `#/c/${made.id}`);
  showConversations();
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
async function tell(work) {
  try {
    return await work();
  } catch (error) {
    const words = error instanceof ApiError ? error.message : "The server could not be reached.";
    byId("empty").replaceChildren(el("p", { class: "notice failed", role: "alert", text: words }));
    byId("empty").hidden = false;
    if (!(error instanceof ApiError) && !(error instanceof TypeError)) throw error;
    return undefined;
  }
}

// The composer

const send = button("Send", { name: "send", bare: true, kind: "primary round", type: "submit" });
const stop = button("Stop", { name: "stop", bare: true, kind: "primary round", title: "Stop (Esc)" }, () => chat.stop());
byId("composer-end").append(send, stop);

function fit() {
  text.style.height = "auto";
  text.style.height = `${Math.min(text.scrollHeight, innerHeight * 0.4)}px`;
}

byId("composer").addEventListener("submit", async (event) => {
  event.preventDefault();
  const said = text.value.trim();
  if (!said || chat.running) return;
  await tell(async () => {
    await ensureConversation(said);
    text.value = "";
    fit();
    await chat.send(said, request());
  });
});
text.addEventListener("input", fit);
text.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  byId("composer").requestSubmit();
});
addEventListener("keydown", (event) => {
  if (event.key === "Escape" && (drawer.contains(document.activeElement) || (!drawer.hidden && !chat.running))) closeDrawer();
  else if (event.key === "Escape" && chat.running) chat.stop();
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
    byId("drawer-body").replaceChildren(el("p", { class: "notice failed", text: error instanceof ApiError ? error.message : "The server could not be reached." }));
    if (!(error instanceof ApiError) && !(error instanceof TypeError)) throw error;
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
byId("side-top").append(button("New chat", { name: "plus", kind: "wide" }, newChat));
byId("scroller").addEventListener("click", () => toggleSide(false));
byId("conversations").addEventListener("click", () => toggleSide(false));
setUpTheme(byId("side-end"));

// The key

onKeyNeeded(askForKeyIn(byId("key-dialog")));

// What is shown

function showState() {
  const busy = Boolean(chat.running);
  send.hidden = busy;
  stop.hidden = !busy;
  const here = state.conversations.find((one) => one.id === chat.id);
  const title = here?.metadata?.title || (chat.id ? "Conversation" : "New chat");
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
  const id = idInAddress();
  showState();
  await tell(async () => {
    await loadModels();
    await Promise.all([toolbox.load(), loadConversations()]);
    byId("tools-button").hidden = !toolbox.isThere;
    byId("store-hint").hidden = (await get("/health")).store_is_lasting !== false;
    byId("telemetry-button").hidden = (await getIfThere("/v1/telemetry?minutes=1")) === null;
    tell(awaitTools);
    if (id && !chat.id) await openConversation(id); // somebody may have begun to chat meanwhile
    else showState();
  });
  text.focus();
}
addEventListener("hashchange", () => {
  const id = idInAddress();
  if (id && id !== chat.id) openConversation(id);
  else if (!id && chat.id) newChat();
});
start();
