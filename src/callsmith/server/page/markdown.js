// Markdown as elements. What is not understood stays text: nothing here ever makes HTML of it, loads an image or runs a script.

import { copyButton, el, shortened } from "./dom.js";

const MOST_ELEMENTS = 8000; // of a text
const MOST_STEPS = 10_000_000; // characters that are looked at to find where emphasis, code and links of a text end
const MOST_INLINE = 8000; // characters of a paragraph; a longer one is shown as it is
const REACH = 2000; // characters within which emphasis, code or a link ends
const MOST_COLUMNS = 100;
const MOST_NESTED = 16;
const MOST_PLAIN = 200_000; // characters that are shown at once of what nothing is made of

// What may still be made of a text, whoever wrote it; what comes behind that is shown as it was written.
class Budget {
  level = 1; // of the latest heading
  elements = MOST_ELEMENTS;
  steps = MOST_STEPS;

  get isSpent() {
    return this.elements <= 0 || this.steps <= 0;
  }

  make(...made) {
    this.elements -= 1;
    return el(...made);
  }
}

const plain = (text) => shortened(text, MOST_PLAIN, (part) => el("p", { class: "plain", text: part }));

// By the character they begin with: what is written, and what it is rendered as.
const INLINE = {
  "`": [[/^(`+)([^`](?:[\s\S]*?[^`])?)\1(?!`)/, (m, budget) => budget.make("code", { text: m[2] })]],
  "*": [
    [/^\*\*(?=\S)([\s\S]*?\S)\*\*(?!\*)/, (m, budget) => budget.make("strong", {}, inline(m[1], budget))],
    [/^\*(?=[^\s*])([\s\S]*?[^\s*])\*(?!\*)/, (m, budget) => budget.make("em", {}, inline(m[1], budget))],
  ],
  _: [
    [/^__(?=\S)([\s\S]*?\S)__(?!\w)/, (m, budget) => budget.make("strong", {}, inline(m[1], budget))],
    [/^_(?=[^\s_])([\s\S]*?[^\s_])_(?!\w)/, (m, budget) => budget.make("em", {}, inline(m[1], budget))],
  ],
  "~": [[/^~~(?=\S)([\s\S]*?\S)~~/, (m, budget) => budget.make("s", {}, inline(m[1], budget))]],
  "!": [[/^!\[([^\]]*)\]\(\s*<?((?:\([^\s()<>]*\)|[^\s()<>])+)>?(?:\s[^)]*)?\)/, (m, budget) => image(m[1], m[2], budget)]],
  "[": [[/^\[([^\]]+)\]\(\s*<?((?:\([^\s()<>]*\)|[^\s()<>])+)>?(?:\s[^)]*)?\)/, (m, budget) => link(inline(m[1], budget), m[2], m[0], budget)]],
  "<": [[/^<((?:https?:\/\/|mailto:)[^\s>]+)>/, (m, budget) => link([m[1]], m[1], m[0], budget)]],
  h: [[/^https?:\/\/(?:\([^\s<>"'`()]*\)|[^\s<>"'`()])*(?:\([^\s<>"'`()]*\)|[^\s<>"'`.,:;!?()\]])/, (m, budget) => link([m[0]], m[0], m[0], budget)]],
};
const SPECIAL = /[`*_~![<\\\n]|https?:\/\//;

export function safeAddress(address) {
  try {
    const url = new URL(address);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : "";
  } catch {
    return "";
  }
}

function link(content, address, source, budget) {
  const safe = safeAddress(address);
  return safe ? budget.make("a", { href: safe, target: "_blank", rel: "noopener noreferrer" }, content) : source;
}

function image(description, address, budget) {
  if (/^data:image\/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+$/.test(address)) return budget.make("img", { src: address, alt: description });
  return link([`image: ${description || address}`], address, `![${description}](${address})`, budget);
}

function inline(text, budget) {
  if (text.length > MOST_INLINE) return [text];
  const nodes = [];
  let plain = "";
  let rest = text;
  const flush = () => {
    if (plain) nodes.push(plain);
    plain = "";
  };
  while (rest) {
    const next = budget.isSpent ? -1 : rest.search(SPECIAL);
    if (next < 0) {
      plain += rest;
      break;
    }
    plain += rest.slice(0, next);
    rest = rest.slice(next);
    const near = rest.slice(0, REACH);
    budget.steps -= rest[0] === "\n" ? 1 : near.length;
    const inWord = rest[0] === "_" && /\w/.test(plain.at(-1) || "");
    const found = !inWord && (INLINE[rest[0]] || []).map(([pattern, make]) => [pattern.exec(near), make]).find(([match]) => match);
    if (found) {
      flush();
      nodes.push(found[1](found[0], budget));
      rest = rest.slice(found[0][0].length);
    } else if (rest[0] === "\\" && /[\\`*_{}[\]()#+\-.!~|<>]/.test(rest[1] || "")) {
      plain += rest[1];
      rest = rest.slice(2);
    } else if (rest[0] === "\n") {
      if (plain.endsWith("  ")) {
        plain = plain.trimEnd();
        flush();
        nodes.push(budget.make("br"));
      } else plain += "\n";
      rest = rest.slice(1);
    } else {
      plain += rest[0];
      rest = rest.slice(1);
    }
  }
  flush();
  return nodes;
}

export function codeBlock(code, language = "") {
  const heading = el("div", { class: "code-heading" }, el("span", { text: language || "text" }), copyButton(code));
  return el("div", { class: "code" }, heading, el("pre", { tabindex: "0" }, el("code", { text: code })));
}

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^\s`]*)/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;

// A heading without the hashes that may close it.
function headingText(text) {
  let end = text.length;
  while (text[end - 1] === "#") end -= 1;
  return (end === 0 || /\s/.test(text[end - 1]) ? text.slice(0, end) : text).trim();
}

const isTableRule = (line) => line.includes("|") && line.includes("-") && /^[\s:|-]+$/.test(line);

const isTable = (lines, at) => lines[at].includes("|") && isTableRule(lines[at + 1] || "");

export function markdown(text, depth = 0, budget = new Budget()) {
  const lines = text.replace(/\r\n?/g, "\n").split("\n");
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    const line = lines[at];
    if (budget.isSpent) {
      blocks.push(plain(lines.slice(at).join("\n")));
      break;
    }
    const fence = FENCE.exec(line);
    const heading = /^ {0,3}(#{1,6})\s+(.*)$/.exec(line);
    if (!line.trim()) at += 1;
    else if (fence) {
      const closes = (other) => other.startsWith(fence[1]) && !other.replaceAll(fence[1][0], "");
      let stop = at + 1;
      while (stop < lines.length && !closes(lines[stop].trim())) stop += 1;
      budget.elements -= 10; // its button has an icon
      blocks.push(codeBlock(lines.slice(at + 1, stop).join("\n"), fence[2]));
      at = stop + 1;
    } else if (heading) {
      budget.level = Math.min(6, heading[1].length + 1, budget.level + 1); // no level is left out, whatever the model does
      blocks.push(budget.make(`h${budget.level}`, {}, inline(headingText(heading[2].trim()), budget)));
      at += 1;
    } else if (/^ {0,3}([-*_])( *\1){2,} *$/.test(line)) {
      blocks.push(budget.make("hr"));
      at += 1;
    } else if (/^ {0,3}>/.test(line) && depth < MOST_NESTED) {
      const start = at;
      while (at < lines.length && /^ {0,3}>/.test(lines[at])) at += 1;
      const inner = lines.slice(start, at).map((one) => one.replace(/^ {0,3}> ?/, "")).join("\n");
      blocks.push(budget.make("blockquote", {}, markdown(inner, depth + 1, budget)));
    } else if (ITEM.test(line) && depth < MOST_NESTED) {
      const [list, next] = readList(lines, at, depth, budget);
      blocks.push(list);
      at = next;
    } else if (isTable(lines, at)) {
      const start = at;
      at += 2;
      while (at < lines.length && lines[at].includes("|")) at += 1;
      blocks.push(table(lines.slice(start, at), budget));
    } else {
      const start = at;
      at += 1;
      while (at < lines.length && lines[at].trim() && !FENCE.test(lines[at]) && !/^ {0,3}(#{1,6}\s|>)/.test(lines[at]) && !ITEM.test(lines[at]) && !isTable(lines, at)) at += 1;
      blocks.push(paragraph(lines.slice(start, at).join("\n"), budget));
    }
  }
  return blocks;
}

function readList(lines, at, depth, budget) {
  const [, indent, marker] = ITEM.exec(lines[at]);
  const ordered = /\d/.test(marker);
  const list = budget.make(ordered ? "ol" : "ul", ordered ? { start: parseInt(marker, 10) } : {});
  while (at < lines.length && !budget.isSpent) {
    const found = ITEM.exec(lines[at]);
    if (!found || found[1].length !== indent.length || /\d/.test(found[2]) !== ordered) break;
    const inner = [found[3]];
    at += 1;
    while (at < lines.length) {
      const other = lines[at];
      const deeper = other.length - other.trimStart().length > indent.length;
      if (!other.trim() ? !/^\s+\S/.test(lines[at + 1] || "") || (lines[at + 1].length - lines[at + 1].trimStart().length <= indent.length) : !deeper) break;
      inner.push(other.slice(Math.min(indent.length + found[2].length + 1, other.length - other.trimStart().length)));
      at += 1;
    }
    const content = markdown(inner.join("\n"), depth + 1, budget);
    const tight = content[0]?.tagName === "P" ? [...content[0].childNodes, ...content.slice(1)] : content;
    list.append(budget.make("li", {}, tight));
    while (at < lines.length && !lines[at].trim() && ITEM.test(lines[at + 1] || "")) at += 1;
  }
  return [list, at];
}

function paragraph(text, budget) {
  return text.length > MOST_PLAIN ? plain(text) : budget.make("p", {}, inline(text, budget));
}

// A row has the cells that it is written with: a short text makes no large table.
function table(lines, budget) {
  const cells = (line) => line.trim().replace(/^\||(?<!\\)\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.replaceAll("\\|", "|"));
  const [heading, , ...rows] = lines;
  const columns = cells(heading);
  if (columns.length > MOST_COLUMNS) return plain(lines.join("\n"));
  const row = (tag, props, line) => budget.make("tr", {}, cells(line).slice(0, columns.length).map((cell) => budget.make(tag, props, inline(cell.trim(), budget))));
  const body = budget.make("tbody");
  let at = 0;
  const head = row("th", { scope: "col" }, heading);
  for (; at < rows.length && !budget.isSpent; at += 1) body.append(row("td", {}, rows[at]));
  const whole = el("div", { class: "table", tabindex: "0" }, el("table", {}, el("thead", {}, head), body));
  if (at < rows.length) whole.append(plain(rows.slice(at).join("\n")));
  return whole;
}
