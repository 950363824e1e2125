// The server's tools: what they cost, which are on in this conversation, the state of MCP servers, and calls by hand.

import { getIfThere, post } from "./api.js";
import { button, el, readableSeconds, shortened } from "./dom.js";
import { schemaForm } from "./form.js";
import { resultBlock, shortName, visible } from "./json.js";
import { explain, isOutside } from "./problems.js";

const MOST_DESCRIPTION = 2000;

const STARTER =
  "This server was given no tools, so this page offers the model three of its own: a clock, a calculator and a unit converter. " +
  "They run on the server's machine, reach nothing and change nothing.";

export class Toolbox {
  constructor() {
    this.isThere = false;
    this.tools = [];
    this.servers = [];
  }

  async load() {
    const found = await getIfThere("/v1/tools?starter_tools=true");
    this.isThere = found !== null;
    this.tools = found?.data || [];
    this.servers = found?.servers || [];
  }

  get isStarting() {
    return this.servers.some((one) => one.state === "starting" || one.state === "configured");
  }

  get names() {
    return this.tools.map((tool) => tool.name);
  }

  // Whether the tools are not the operator's, but a clock and the like that the page offers where there are none.
  get areStarter() {
    return this.tools.length > 0 && this.tools.every((tool) => tool.source === "starter");
  }

  summary() {
    if (this.areStarter) return STARTER;
    if (!this.tools.length) return "The model answers by itself: this server has no tools of its own.";
    const names = this.names.slice(0, 4).join(", ");
    return this.tools.length > 4 ? `The model can call ${names} and ${this.tools.length - 4} more tools.` : `The model can call ${names}.`;
  }

  // The parameters of the tool that a call is of.
  async schemaOf(call) {
    const isMeant = (tool) => (tool.original || tool.name) === call.name && (tool.source || "").replace(/^mcp:/, "") === (call.label || "");
    return (this.tools.find(isMeant) || this.tools.find((tool) => tool.name === call.name))?.parameters;
  }

  async panel(settings, changeSettings) {
    await this.load();
    const cost = this.tools.filter((tool) => !settings.off.includes(tool.name)).reduce((sum, tool) => sum + (tool.tokens || 0), 0);
    const total = cost ? ` Their definitions take ${cost} tokens of each prompt.` : "";
    const whose = this.areStarter ? `${STARTER} ` : "";
    const intro = el("p", { class: "hint", text: this.tools.length ? `${whose}Switched off, a tool is not offered in this conversation.${total}` : "This server has no tools of its own." });
    return [intro, this.#servers(), this.tools.map((tool) => this.#tool(tool, settings, changeSettings))].flat();
  }

  #servers() {
    return this.servers.map((one) =>
      el(
        "div",
        { class: `server ${one.state}` },
        el("span", { class: "dot", "aria-hidden": "true" }),
        el("strong", { text: one.label }),
        el("span", { class: "hint", text: `${one.state}, ${one.tools} tools` }),
        one.error ? el("p", { class: "problem", text: shortName(one.error) }) : null,
      ),
    );
  }

  #tool(tool, settings, changeSettings) {
    const on = el("input", { type: "checkbox", checked: !settings.off.includes(tool.name), "aria-label": `Offer ${shortName(tool.name)}` });
    on.addEventListener("change", () => {
      const off = settings.off.filter((name) => name !== tool.name);
      changeSettings({ off: on.checked ? off : [...off, tool.name] });
    });
    const about = [tool.source?.replace(/^mcp:/, ""), tool.tokens && `${tool.tokens} tokens`, tool.needs_approval ? "asks first" : tool.side_effects && "side effects"];
    const body = el("div", { class: "tool-body" });
    const details = el("details", {}, el("summary", {}, el("strong", { text: shortName(tool.name) }), el("span", { class: "hint", text: about.filter(Boolean).join(" · ") })), body);
    details.addEventListener("toggle", () => details.open && !body.children.length && body.append(...this.#byHand(tool)));
    return el("div", { class: "tool" }, on, details);
  }

  // A form that calls the tool.
  #byHand(tool) {
    const form = schemaForm(tool.parameters);
    const result = el("div", { class: "result", "aria-live": "polite" });
    const call = async (approve) => {
      let given;
      try {
        given = form.read();
      } catch {
        return;
      }
      run.disabled = true;
      try {
        const answer = await post(`/v1/tools/${encodeURIComponent(tool.name)}`, { arguments: given, starter_tools: true, ...(approve ? { approve } : {}) });
        const { ok, content, seconds } = answer.result;
        const words = `${ok ? "Done" : "Failed"}${seconds === undefined ? "" : `, ${readableSeconds(seconds)}`}`;
        result.replaceChildren(el("p", { class: ok ? "hint" : "problem", text: words }), ...[resultBlock(typeof content === "string" ? content : JSON.stringify(content))].flat());
      } catch (error) {
        if (!isOutside(error)) throw error;
        const ask = error.code === "confirmation_required";
        const sure = button("Run it all the same", { kind: "danger" }, () => call(true));
        result.replaceChildren(el("p", { class: "problem", text: ask ? "This call needs approval: it can change things." : explain(error) }), ask ? sure : "");
      } finally {
        run.disabled = false;
      }
    };
    const run = button("Call it", { kind: "primary" }, () => call(false));
    return [shortened(visible(tool.description || "It says nothing of itself."), MOST_DESCRIPTION, (part) => el("p", { text: part })), form.element, el("div", { class: "actions" }, run), result];
  }
}
