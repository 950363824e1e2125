// Markdown as elements. What is not understood stays text: nothing here ever makes HTML of it, loads an image or runs a script.

import { copyButton, el } from "./dom.js";

// By the character they begin with: what is written, and what becomes of it.
const INLINE = {
  "`": [[/^(`+)([^`](?:[\s\S]*?[^`])?)\1(?!`)/, (m) => el("code", { text: m[2] })]],
  "*": [
    [/^\*\*(?=\S)([\s\S]*?\S)\*\*/, (m) => el("strong", {}, inline(m[1]))],
    [/^\*(?=[^\s*])([\s\S]*?[^\s*])\*(?!\*)/, (m) => el("em", {}, inline(m[1]))],
  ],
  _: [
    [/^__(?=\S)([\s\S]*?\S)__(?!\w)/, (m) => el("strong", {}, inline(m[1]))],
    [/^_(?=[^\s_])([\s\S]*?[^\s_])_(?!\w)/, (m) => el("em", {}, inline(m[1]))],
  ],
  "~": [[/^~~(?=\S)([\s\S]*?\S)~~/, (m) => el("s", {}, inline(m[1]))]],
  "!": [[/^!\[([^\]]*)\]\(\s*<?([^\s)>]+)>?[^)]*\)/, (m) => image(m[1], m[2])]],
  "[": [[/^\[([^\]]+)\]\(\s*<?([^\s)>]+)>?[^)]*\)/, (m) => link(inline(m[1]), m[2], m[0])]],
  "<": [[/^<((?:https?:\/\/|mailto:)[^\s>]+)>/, (m) => link([m[1]], m[1], m[0])]],
  h: [[/^https?:\/\/[^\s<>"'`]*[^\s<>"'`.,:;!?)\]]/, (m) => link([m[0]], m[0], m[0])]],
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

function link(content, address, source) {
  const safe = safeAddress(address);
  return safe ? el("a", { href: safe, target: "_blank", rel: "noopener noreferrer" }, content) : source;
}

function image(description, address) {
  if (/^data:image\/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+$/.test(address)) return el("img", { src: address, alt: description });
  return link([`image: ${description || address}`], address, `![${description}](${address})`);
}

const MOST_INLINE = 8000; // characters of a paragraph; a longer one is shown as it is

export function inline(text) {
  if (text.length > MOST_INLINE) return [text];
  const nodes = [];
  let plain = "";
  let rest = text;
  const flush = () => {
    if (plain) nodes.push(plain);
    plain = "";
  };
  while (rest) {
    const next = rest.search(SPECIAL);
    if (next < 0) {
      plain += rest;
      break;
    }
    plain += rest.slice(0, next);
    rest = rest.slice(next);
    const inWord = /\w$/.test(plain) && rest[0] === "_";
    const found = !inWord && (INLINE[rest[0]] || []).map(([pattern, make]) => [pattern.exec(rest), make]).find(([match]) => match);
    if (found) {
      flush();
      nodes.push(found[1](found[0]));
      rest = rest.slice(found[0][0].length);
    } else if (rest[0] === "\\" && /[\\`*_{}[\]()#+\-.!~|<>]/.test(rest[1] || "")) {
      plain += rest[1];
      rest = rest.slice(2);
    } else if (rest[0] === "\n") {
      if (/ {2}$/.test(plain)) {
        plain = plain.trimEnd();
        flush();
        nodes.push(el("br"));
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
const MOST_NESTED = 16;

export function markdown(text, depth = 0, outline = { level: 1 }) {
  const lines = text.replace(/\r\n?/g, "\n").split("\n");
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    const line = lines[at];
    const fence = FENCE.exec(line);
    const heading = /^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$/.exec(line);
    if (!line.trim()) at += 1;
    else if (fence) {
      const end = lines.findIndex((other, index) => index > at && other.trim().startsWith(fence[1]) && !other.trim().replaceAll(fence[1][0], ""));
      const stop = end < 0 ? lines.length : end;
      blocks.push(codeBlock(lines.slice(at + 1, stop).join("\n"), fence[2]));
      at = stop + 1;
    } else if (heading) {
      outline.level = Math.min(6, heading[1].length + 1, outline.level + 1); // no level is left out, whatever the model does
      blocks.push(el(`h${outline.level}`, {}, inline(heading[2])));
      at += 1;
    } else if (/^ {0,3}([-*_])( *\1){2,} *$/.test(line)) {
      blocks.push(el("hr"));
      at += 1;
    } else if (/^ {0,3}>/.test(line) && depth < MOST_NESTED) {
      const start = at;
      while (at < lines.length && /^ {0,3}>/.test(lines[at])) at += 1;
      const inner = lines.slice(start, at).map((one) => one.replace(/^ {0,3}> ?/, "")).join("\n");
      blocks.push(el("blockquote", {}, markdown(inner, depth + 1, outline)));
    } else if (ITEM.test(line) && depth < MOST_NESTED) {
      const [list, next] = readList(lines, at, depth, outline);
      blocks.push(list);
      at = next;
    } else if (line.includes("|") && /^ {0,3}\|?[\s:|-]*-[\s:|-]*$/.test(lines[at + 1] || "") && lines[at + 1].includes("|")) {
      const start = at;
      at += 2;
      while (at < lines.length && lines[at].includes("|")) at += 1;
      blocks.push(table(lines.slice(start, at)));
    } else {
      const start = at;
      at += 1;
      while (at < lines.length && lines[at].trim() && !FENCE.test(lines[at]) && !/^ {0,3}(#{1,6}\s|>)/.test(lines[at]) && !ITEM.test(lines[at])) at += 1;
      blocks.push(el("p", {}, inline(lines.slice(start, at).join("\n"))));
    }
  }
  return blocks;
}

function readList(lines, at, depth, outline) {
  const [, indent, marker] = ITEM.exec(lines[at]);
  const ordered = /\d/.test(marker);
  const list = el(ordered ? "ol" : "ul", ordered ? { start: parseInt(marker, 10) } : {});
  while (at < lines.length) {
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
    const content = markdown(inner.join("\n"), depth + 1, outline);
    const tight = content[0]?.tagName === "P" ? [...content[0].childNodes, ...content.slice(1)] : content;
    list.append(el("li", {}, tight));
    while (at < lines.length && !lines[at].trim() && ITEM.test(lines[at + 1] || "")) at += 1;
  }
  return [list, at];
}

function table(lines) {
  const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => inline(cell.trim()));
  const [heading, , ...rows] = lines;
  const columns = cells(heading);
  const head = el("tr", {}, columns.map((cell) => el("th", { scope: "col" }, cell)));
  const body = rows.map(cells).map((row) => el("tr", {}, columns.map((_, index) => el("td", {}, row[index] || []))));
  return el("div", { class: "table", tabindex: "0" }, el("table", {}, el("thead", {}, head), el("tbody", {}, body)));
}
