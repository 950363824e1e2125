// Elements made without HTML: text is always text.

const SVG = "http://www.w3.org/2000/svg";

function build(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") for (const [type, listener] of Object.entries(value)) element.addEventListener(type, listener);
    else if (name === "text") element.textContent = value;
    else if (name === "value") element.value = value;
    else if (name === "checked" || name === "disabled" || name === "open" || name === "hidden") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const el = (tag, props = {}, ...children) => build(document.createElement(tag), props, children);
export const svg = (tag, props = {}, ...children) => build(document.createElementNS(SVG, tag), props, children);
export const byId = (id) => document.getElementById(id);

const ICONS = {
  plus: ["M12 5v14", "M5 12h14"],
  send: ["M12 19V5", "M5 12l7-7 7 7"],
  stop: ["M7 7h10v10H7z"],
  menu: ["M4 7h16", "M4 12h16", "M4 17h16"],
  close: ["M6 6l12 12", "M18 6L6 18"],
  tools: ["M14.7 6.3a4 4 0 0 0-5.4 5.2L4 16.8V20h3.2l5.3-5.3a4 4 0 0 0 5.2-5.4l-2.5 2.5-2.4-.6-.6-2.4z"],
  chart: ["M4 20h16", "M7 16v-5", "M12 16V6", "M17 16v-8"],
  sliders: ["M4 8h10", "M18 8h2", "M4 16h2", "M10 16h10", "M16 6v4", "M8 14v4"],
  sun: ["M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8z", "M12 3v1", "M12 20v1", "M3 12h1", "M20 12h1", "M5.6 5.6l.8.8", "M17.6 17.6l.8.8", "M5.6 18.4l.8-.8", "M17.6 6.4l.8-.8"],
  trash: ["M5 7h14", "M9 7V4h6v3", "M7 7l1 13h8l1-13"],
  check: ["M5 13l4 4L19 7"],
  alert: ["M12 8v5", "M12 16.5v.5", "M12 3l9.5 17h-19z"],
  copy: ["M9 9h10v11H9z", "M5 15V4h10"],
  key: ["M8 12a4 4 0 1 0 0 .1z", "M12 12h9", "M18 12v4"],
  shield: ["M12 3l8 3v6c0 5-3.5 8-8 9-4.5-1-8-4-8-9V6z"],
  retry: ["M4 12a8 8 0 1 0 2.5-5.8", "M4 4v5h5"],
  clip: ["M20 11l-8.5 8.5a5 5 0 0 1-7-7L13 4a3.3 3.3 0 0 1 4.7 4.7l-8.2 8.2a1.7 1.7 0 0 1-2.4-2.4L14.5 7"],
  file: ["M6 3h8l4 4v14H6z", "M14 3v4h4"],
  edit: ["M4 20l1-4L16 5l3 3L8 19z"],
};

export function icon(name) {
  const lines = ICONS[name].map((d) => svg("path", { d }));
  return svg("svg", { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true" }, lines);
}

// A button with an icon; its label is shown too unless `bare`.
export function button(label, { name, bare, kind = "", title, ...props } = {}, onclick = undefined) {
  const around = { type: "button", class: `button ${kind} ${bare ? "bare" : ""}`.trim(), on: { click: onclick } };
  if (bare) Object.assign(around, { "aria-label": label, title: title || label });
  if (!onclick) delete around.on;
  return el("button", { ...around, ...props }, name && icon(name), bare ? null : el("span", { text: label }));
}

// A button that copies a text. Browsers allow that on this machine and over HTTPS only.
export function copyButton(text, kind = "") {
  if (!navigator.clipboard) return null;
  const copy = button("Copy", { kind: `small ${kind}`, name: "copy" }, async () => {
    const isCopied = await navigator.clipboard.writeText(text).then(() => true, () => false);
    copy.lastChild.textContent = isCopied ? "Copied" : "The browser does not allow it";
  });
  return copy;
}

// Content that is short at first, with a button that shows all of it.
export function shortened(text, most, make) {
  if (text.length <= most) return make(text);
  const whole = el("div", { class: "shortened" });
  const size = readableSize(text.length);
  const more = button(`Show all (${size})`, { kind: "small" }, () => whole.replaceChildren(make(text)));
  whole.append(make(text.slice(0, most)), el("p", { class: "hint", text: `The first part of ${size}.` }), more);
  return whole;
}

export function readableSize(characters) {
  if (characters < 1000) return `${characters} characters`;
  return characters < 1e6 ? `${(characters / 1000).toFixed(1)} KB` : `${(characters / 1e6).toFixed(1)} MB`;
}

export function readableSeconds(seconds) {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  return seconds < 60 ? `${seconds.toFixed(1)} s` : `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}
