// What a conversation is asked with: model, system prompt, temperature, tools that are off. It is stored with the conversation.

import { el } from "./dom.js";
import { forLong } from "./memory.js";

const LAST = "callsmith.settings"; // those of the latest conversation, for the next one

export const STANDARD = { model: "", instructions: "", temperature: null, off: [] };

export function lastSettings() {
  try {
    return { ...STANDARD, model: JSON.parse(forLong.getItem(LAST) || "{}").model || "" };
  } catch {
    return { ...STANDARD }; // somebody else has written there
  }
}

export function readSettings(conversation) {
  try {
    return { ...STANDARD, ...JSON.parse(conversation.metadata?.settings || "{}") };
  } catch {
    return { ...STANDARD }; // somebody else has written there
  }
}

export const rememberSettings = (settings) => forLong.setItem(LAST, JSON.stringify(settings));

// The fields of a request. `tools` are the names of all tools; none are named where all are on.
export function requestFields(settings, tools) {
  const on = tools.filter((name) => !settings.off.includes(name));
  return {
    model: settings.model,
    starter_tools: true, // they are offered only where the server was given none
    ...(settings.instructions ? { instructions: settings.instructions } : {}),
    ...(settings.temperature === null ? {} : { temperature: settings.temperature }),
    ...(on.length < tools.length ? { server_tools: on } : {}),
  };
}

export function settingsPanel(settings, onChange) {
  const prompt = el("textarea", { id: "system-prompt", rows: 8, placeholder: "How the model should answer" });
  prompt.value = settings.instructions;
  prompt.addEventListener("change", () => onChange({ instructions: prompt.value.trim() }));
  const heat = el("input", { id: "temperature", type: "number", min: 0, max: 2, step: 0.1, placeholder: "the model's own" });
  heat.value = settings.temperature ?? "";
  heat.addEventListener("change", () => onChange({ temperature: heat.value === "" ? null : Math.min(2, Math.max(0, Number(heat.value))) }));
  return [
    el("div", { class: "field" }, el("label", { for: "system-prompt", text: "System prompt" }), prompt),
    el("div", { class: "field" }, el("label", { for: "temperature", text: "Temperature" }), heat, el("span", { class: "hint", text: "0 always takes the likeliest word. Empty: as the model's makers advise." })),
    el("p", { class: "hint", text: "These hold for this conversation, and are stored with it." }),
  ];
}
