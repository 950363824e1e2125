// Text files that go with a message: read, shown as chips, and written into the message so that nothing in them ends them early.

import { button, el, icon, readableSize, shortened } from "./dom.js";
import { shortName, visible } from "./json.js";

const MOST_FILES = 10;
const MOST_BYTES = 512 * 1024; // all files of a message
const MOST_SHOWN = 6000;

export class FileRefused extends Error {}

function decode(bytes) {
  const isWide = (bytes[0] === 0xff && bytes[1] === 0xfe) || (bytes[0] === 0xfe && bytes[1] === 0xff);
  const encoding = !isWide ? "utf-8" : bytes[0] === 0xff ? "utf-16le" : "utf-16be";
  const text = new TextDecoder(encoding, { fatal: true }).decode(bytes);
  if (text.includes("\0")) throw new TypeError("a text has no such character");
  return text;
}

const nameOf = (file) => shortName(file.name.replace(/[\s`]+/g, " ").trim()) || "unnamed";

async function readFile(file) {
  const name = nameOf(file);
  let bytes;
  try {
    bytes = new Uint8Array(await file.arrayBuffer());
  } catch {
    throw new FileRefused(`"${name}" could not be read. A folder cannot be attached: choose the files in it.`);
  }
  try {
    return { name, text: decode(bytes) };
  } catch {
    throw new FileRefused(`"${name}" is not a text file. Only text (UTF-8) can be attached; pictures, PDF and other binary files cannot.`);
  }
}

// A file as a part of a message, in a fence that is longer than any in it.
export function asPart({ name, text }) {
  const longest = (text.match(/`{3,}/g) || []).reduce((most, run) => Math.max(most, run.length), 2);
  const fence = "`".repeat(longest + 1);
  return `\nFile: ${name}\n${fence}\n${text}\n${fence}`;
}

// The file that a part of a message is; null where it is none. What somebody writes never begins with an empty line.
export function asFile(part) {
  const [whole, name, fence] = /^\nFile: ([^\n]{1,3000})\n(`{3,})\n/.exec(part) || [];
  const end = `\n${fence}`;
  if (!whole || !part.endsWith(end) || part.length < whole.length + end.length) return null;
  return { name, text: part.slice(whole.length, -end.length) };
}

// What is sent for a message with files.
export function contentOf(said, files) {
  if (!files.length) return said;
  return [...(said ? [said] : []), ...files.map(asPart)].map((text) => ({ type: "input_text", text }));
}

// A file that was sent: its name, and on demand what it says.
export function sentFile({ name, text }) {
  const body = el("div");
  const about = el("span", { class: "hint", text: readableSize(text.length) });
  const details = el("details", { class: "file" }, el("summary", {}, icon("file"), el("span", { class: "file-name", text: name }), about), body);
  details.addEventListener("toggle", () => {
    if (details.open && !body.children.length) body.append(shortened(visible(text), MOST_SHOWN, (part) => el("pre", { tabindex: "0", text: part })));
  });
  return details;
}

// The files of a message that is being written, each with a button that takes it out again.
export class Attachments {
  constructor({ files = [], announce, onRemove }) {
    Object.assign(this, { files: [...files], announce, onRemove });
    this.element = el("ul", { class: "chips", "aria-label": "Attached files" });
    this.reading = Promise.resolve();
    this.#show();
  }

  // Read files and attach them; the promise is of sentences about those that cannot be.
  add(chosen) {
    const mine = this.reading.then(() => this.#add([...chosen]));
    this.reading = mine.catch(() => {});
    return mine;
  }

  // The files; there are none afterwards.
  take() {
    const { files } = this;
    this.files = [];
    this.#show();
    return files;
  }

  async #add(chosen) {
    const problems = [];
    for (const file of chosen) {
      const used = this.files.reduce((sum, one) => sum + one.bytes, 0);
      if (this.files.length >= MOST_FILES) {
        problems.push(`Only ${MOST_FILES} files can be attached to a message.`);
        break;
      }
      if (used + file.size > MOST_BYTES) {
        const together = used ? " together with the others" : "";
        problems.push(`"${nameOf(file)}" is too large (${readableSize(file.size)})${together}: at most ${MOST_BYTES / 1024} KB of text can be attached to a message.`);
        continue;
      }
      try {
        this.files.push({ ...(await readFile(file)), bytes: file.size });
      } catch (error) {
        if (!(error instanceof FileRefused)) throw error;
        problems.push(error.message);
      }
    }
    this.#show();
    if (this.files.length && !problems.length) this.announce(`Attached: ${this.files.map((one) => one.name).join(", ")}`);
    return problems.slice(0, 3);
  }

  #show() {
    const chips = this.files.map((file) =>
      el(
        "li",
        { class: "chip" },
        icon("file"),
        el("span", { class: "file-name", title: file.name, text: file.name }),
        el("span", { class: "hint", text: readableSize(file.text.length) }),
        button(`Remove ${file.name}`, { name: "close", bare: true }, () => {
          this.files = this.files.filter((other) => other !== file);
          this.#show();
          this.announce(`Removed: ${file.name}`);
          this.onRemove();
        }),
      ),
    );
    this.element.replaceChildren(...chips);
    this.element.hidden = !chips.length;
  }
}

// Files that are dragged onto the page: `add` gets them. Elsewhere the browser would open them in the page's place.
export function takeDrops(place, add) {
  const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
  const mark = (on) => place.classList.toggle("dropping", on);
  addEventListener("dragover", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    mark(true);
  });
  addEventListener("dragleave", (event) => event.relatedTarget === null && mark(false));
  addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    mark(false);
    add(event.dataTransfer.files);
  });
}
