// The API of this server, shown from its OpenAPI document. All of it is data: elements are made without HTML.

import { get, onKeyNeeded } from "./api.js";
import { byId, el } from "./dom.js";
import { askForKeyIn } from "./key.js";
import { explain } from "./problems.js";

const METHODS = ["get", "post", "put", "patch", "delete"];
onKeyNeeded(askForKeyIn(byId("key-dialog")));
const api = await get("/openapi.json").catch((error) => {
  byId("operations").append(el("p", { class: "notice failed", role: "alert", text: explain(error) }));
  throw error;
});
const shown = [];

const named = (schema) => schema.$ref?.split("/").pop();
const resolved = (schema) => (schema.$ref ? api.components.schemas[named(schema)] : schema);

// What a value is, in a few words.
function kindOf(schema) {
  if (schema.$ref) return named(schema);
  if ("const" in schema) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.length ? schema.enum.map((one) => JSON.stringify(one)).join(" | ") : "nothing";
  if (schema.anyOf) return [...new Set(schema.anyOf.map(kindOf))].join(" | ");
  if (schema.type === "array") return `array of ${kindOf(schema.items)}`;
  if (Array.isArray(schema.type)) return schema.type.map((type) => kindOf({ ...schema, type })).join(" | ");
  return schema.type || "anything";
}

// The schemas inside one that have fields of their own.
function inner(schema) {
  if (schema.$ref) return inner(resolved(schema));
  if (schema.anyOf) return schema.anyOf.flatMap(inner);
  if (schema.items) return inner(schema.items);
  if (schema.properties) return [schema];
  return typeof schema.additionalProperties === "object" ? inner(schema.additionalProperties) : [];
}

const fieldsOf = (schema) => inner(schema).map((one) => el("ul", { class: "fields" }, Object.entries(one.properties).map(([name, field]) => fieldItem(name, field, one.required?.includes(name)))));

function fieldItem(name, field, required) {
  const words = [
    el("span", { class: "name", text: name }),
    required ? el("strong", { class: "about", text: " always" }) : null,
    el("span", { class: "kind", text: `  ${kindOf(field)}` }),
    field.description ? el("span", { class: "about", text: `  ${field.description}` }) : null,
  ];
  return inner(field).length ? el("li", {}, folded(words, () => fieldsOf(field))) : el("li", {}, words);
}

// What is made only when it is opened: schemas refer to each other without end.
function folded(words, make, props = {}) {
  const details = el("details", props, el("summary", {}, words));
  details.addEventListener("toggle", () => details.open && details.children.length === 1 && details.append(...make()), { once: true });
  return details;
}

function curl(method, path, operation) {
  const body = operation.requestBody?.content["application/json"];
  const parts = [`curl ${location.origin}${path}`];
  if (api.security) parts.push('-H "authorization: Bearer $KEY"');
  if (body) parts.push("-H 'content-type: application/json'", `-d '${JSON.stringify(body.example ?? {}, null, 1).replaceAll("'", "'\\''")}'`);
  else if (method !== "get") parts.push(`-X ${method.toUpperCase()}`);
  return parts.join(" \\\n  ");
}

function inside(method, path, operation) {
  const body = operation.requestBody?.content["application/json"].schema;
  const answers = Object.entries(operation.responses).flatMap(([status, one]) => Object.entries(one.content || {}).map(([media, { schema }]) => [status, media, schema]));
  return [
    el(
      "div",
      { class: "inside" },
      operation.description ? el("p", { text: operation.description }) : null,
      el("h3", { text: "With curl" }),
      el("pre", { tabindex: "0", text: curl(method, path, operation) }),
      operation.parameters ? [el("h3", { text: "Parameters" }), el("ul", { class: "fields" }, operation.parameters.map((one) => fieldItem(`${one.name} (${one.in})`, { ...one.schema, description: one.description }, one.required)))] : null,
      body ? [el("h3", { text: `Request: ${kindOf(body)}` }), ...fieldsOf(body)] : null,
      answers.flatMap(([status, media, schema]) => [el("h3", { text: `${status === "default" ? "Error" : status}, ${media}: ${kindOf(schema)}` }), ...fieldsOf(schema)]),
    ),
  ];
}

function operationItem(method, path, operation) {
  const words = [
    el("span", { class: "method", text: method.toUpperCase() }),
    el("span", { class: "path", text: path }),
    el("span", { class: "what", text: operation.summary }),
  ];
  const details = folded(words, () => inside(method, path, operation), { class: "operation", id: operation.operationId });
  const body = operation.requestBody?.content["application/json"].schema;
  const fields = body ? inner(body).flatMap((one) => Object.keys(one.properties)) : [];
  shown.push({ details, text: [method, path, operation.summary, operation.description, ...fields].join(" ").toLowerCase() });
  return details;
}

const groups = new Map();
for (const [path, methods] of Object.entries(api.paths))
  for (const method of METHODS)
    if (methods[method]) {
      const [tag] = methods[method].tags;
      if (!groups.has(tag)) groups.set(tag, []);
      groups.get(tag).push(operationItem(method, path, methods[method]));
    }
byId("operations").append(...[...groups].map(([tag, items]) => el("section", {}, el("h2", { text: tag }), items)));

function search() {
  const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  let found = 0;
  for (const { details, text } of shown) {
    details.hidden = !words.every((word) => text.includes(word));
    found += !details.hidden;
  }
  for (const section of byId("operations").children) section.hidden = [...section.querySelectorAll(".operation")].every((one) => one.hidden);
  byId("found").textContent = words.length ? `${found} of ${shown.length}` : "";
}
byId("search").addEventListener("input", search);
const here = location.hash && byId(location.hash.slice(1));
if (here) here.open = true;
search();
