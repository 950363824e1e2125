// A form made of a JSON Schema, with JSON itself where the schema says too little, or somebody prefers it.

import { button, el } from "./dom.js";
import { parse } from "./json.js";

const MOST_NESTED = 6;
let made = 0;

function resolve(schema, root) {
  let found = schema;
  for (let hops = 0; found?.$ref && hops < 20; hops += 1) {
    const parts = found.$ref.split("/").slice(1).map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"));
    found = parts.reduce((at, part) => at?.[part], root);
  }
  if (found === undefined || found === null || found === true) return {};
  if (found.allOf?.length === 1) return { ...found, ...resolve(found.allOf[0], root), allOf: undefined };
  const choices = found.anyOf || found.oneOf;
  const real = choices?.filter((one) => resolve(one, root).type !== "null");
  if (real?.length === 1) return { ...found, anyOf: undefined, oneOf: undefined, ...resolve(real[0], root), nullable: true };
  if (Array.isArray(found.type)) {
    const types = found.type.filter((type) => type !== "null");
    if (types.length === 1) return { ...found, type: types[0], nullable: true };
  }
  return found;
}

function titled(choices) {
  const all = choices?.every((one) => "const" in one);
  return all ? choices.map((one) => [one.const, one.title || String(one.const)]) : null;
}

function optionsOf(schema) {
  if (schema.enum) return schema.enum.map((value, index) => [value, schema.enumNames?.[index] || String(value)]);
  if ("const" in schema) return [[schema.const, String(schema.const)]];
  return titled(schema.oneOf || schema.anyOf);
}

function kindOf(schema) {
  if (optionsOf(schema)) return "choice";
  if (schema.type === "object" || (!schema.type && schema.properties)) return schema.properties && !schema.anyOf && !schema.oneOf ? "object" : "json";
  return ["string", "number", "integer", "boolean", "array"].includes(schema.type) ? schema.type : "json";
}

// A part of a form: its element, and `read()`, which gives the value, undefined where it is left out, or throws a sentence.
function field(schema, value, context) {
  const one = resolve(schema, context.root);
  const kind = context.depth > MOST_NESTED ? "json" : kindOf(one);
  const standard = one.default ?? undefined;
  const part = MAKERS[kind](one, value === undefined ? standard : value, context);
  let isChanged = value === undefined && (context.required || standard !== undefined);
  const change = (event) => (isChanged ||= event.type !== "click" || Boolean(event.target.closest("button")));
  for (const type of ["input", "change", "click"]) part.element.addEventListener(type, change);
  return { element: part.element, read: () => (isChanged ? part.read() : value) }; // what nobody has changed stays as it was given
}

function labelled(input, schema, { name, required }) {
  made += 1;
  input.id = `field${made}`;
  const hint = schema.description && el("span", { class: "hint", id: `${input.id}-hint`, text: schema.description });
  if (hint) input.setAttribute("aria-describedby", hint.id);
  const label = el("label", { for: input.id, text: schema.title || name }, required ? el("span", { class: "required", text: " (required)" }) : null);
  return el("div", { class: input.type === "checkbox" ? "field inline" : "field" }, input.type === "checkbox" ? [input, label] : [label, input], hint);
}

function leaf(input, schema, context, convert) {
  return {
    element: labelled(input, schema, context),
    read() {
      const text = input.value;
      if (text === "" && !(schema.type === "string" && (context.required || context.had))) {
        if (context.required) throw new Error(`${schema.title || context.name}: is required`);
        return undefined;
      }
      return convert(text);
    },
  };
}

const FORMATS = { date: "date", email: "email", uri: "url", time: "time" };

const MAKERS = {
  string(schema, value, context) {
    const long = typeof value === "string" && (value.length > 60 || value.includes("\n"));
    const input = long ? el("textarea", { rows: Math.min(10, value.split("\n").length + 2) }) : el("input", { type: FORMATS[schema.format] || "text", maxlength: schema.maxLength });
    input.value = value ?? "";
    return leaf(input, schema, { ...context, had: value !== undefined }, (text) => text);
  },
  number(schema, value, context) {
    const whole = schema.type === "integer";
    const input = el("input", { type: "number", step: whole ? "1" : "any", min: schema.minimum, max: schema.maximum });
    input.value = value?.rawJSON ?? value ?? "";
    return leaf(input, schema, context, (text) => {
      const number = Number(text);
      if (whole && !Number.isSafeInteger(number) && /^-?[1-9]\d*$/.test(text) && JSON.rawJSON) return JSON.rawJSON(text);
      if (Number.isNaN(number) || (whole && !Number.isInteger(number))) throw new Error(`${schema.title || context.name}: expected ${whole ? "a whole number" : "a number"}`);
      return number;
    });
  },
  integer: (schema, value, context) => MAKERS.number(schema, value, context),
  boolean(schema, value, context) {
    const input = el("input", { type: "checkbox", checked: value === true });
    return { element: labelled(input, schema, { ...context, required: false }), read: () => (input.checked || context.required || value !== undefined ? input.checked : undefined) };
  },
  choice(schema, value, context) {
    const options = optionsOf(schema);
    const at = options.findIndex(([option]) => JSON.stringify(option) === JSON.stringify(value));
    const none = context.required && at >= 0 ? null : el("option", { value: "", text: "—" });
    const input = el("select", {}, none, options.map(([, name], index) => el("option", { value: String(index), text: name })));
    input.value = at >= 0 ? String(at) : "";
    return leaf(input, { ...schema, type: "" }, context, (index) => options[Number(index)][0]);
  },
  object(schema, value, context) {
    const given = value !== null && typeof value === "object" ? value : {};
    const required = schema.required || [];
    const parts = Object.entries(schema.properties).map(([name, inner]) => [
      name,
      field(inner, given[name], { root: context.root, depth: context.depth + 1, name, required: required.includes(name) }),
    ]);
    const known = new Set(parts.map(([name]) => name));
    const others = Object.fromEntries(Object.entries(given).filter(([name]) => !known.has(name)));
    const inside = parts.map(([, part]) => part.element);
    const legend = context.name && el("legend", { text: schema.title || context.name });
    return {
      element: context.name ? el("fieldset", {}, legend, inside) : el("div", { class: "fields" }, inside),
      read() {
        const read = parts.map(([name, part]) => [name, part.read()]).filter(([, one]) => one !== undefined);
        const whole = { ...Object.fromEntries(read), ...others };
        return !Object.keys(whole).length && context.name && !context.required && value === undefined ? undefined : whole;
      },
    };
  },
  array(schema, value, context) {
    const parts = [];
    const list = el("div", { class: "fields" });
    const add = (given) => {
      const part = field(schema.items || {}, given, { root: context.root, depth: context.depth + 1, name: `${context.name || "item"} ${parts.length + 1}`, required: true });
      const row = el("div", { class: "row" }, part.element, button("Remove this entry", { name: "trash", bare: true }, () => {
        parts.splice(parts.indexOf(part), 1);
        row.remove();
      }));
      parts.push(part);
      list.append(row);
    };
    for (const one of Array.isArray(value) ? value : []) add(one);
    const more = button("Add", { name: "plus", kind: "small" }, () => add(undefined));
    return {
      element: el("fieldset", {}, el("legend", { text: schema.title || context.name || "List" }), list, more),
      read: () => (parts.length || context.required || value !== undefined ? parts.map((part) => part.read()) : undefined),
    };
  },
  json(schema, value, context) {
    const input = el("textarea", { class: "raw", rows: 4, spellcheck: "false" });
    input.value = value === undefined ? "" : JSON.stringify(value, null, 2);
    return leaf(input, { ...schema, title: `${schema.title || context.name || "Value"} (JSON)` }, context, (text) => {
      const read = parse(text);
      if (read === undefined) throw new Error(`${context.name || "Value"}: this is not valid JSON; look for a missing quote, comma or bracket`);
      return read;
    });
  },
};

// A form for an object: its element, and `read()`, which gives the object or throws a sentence. `value` is what was given before.
export function schemaForm(schema, value = undefined) {
  const root = schema && typeof schema === "object" ? schema : {};
  const hasFields = kindOf(resolve(root, root)) === "object";
  const raw = el("textarea", { class: "raw", rows: 8, spellcheck: "false", "aria-label": "The arguments as JSON" });
  const place = el("div", {});
  let part = null;
  const showFields = (given) => {
    part = field(root, given, { root, depth: 0, name: "", required: true });
    place.replaceChildren(part.element);
  };
  const showRaw = (given) => {
    part = null;
    raw.value = JSON.stringify(given ?? {}, null, 2);
    place.replaceChildren(raw);
  };
  const read = () => {
    if (part) return part.read();
    const found = parse(raw.value);
    if (found === null || typeof found !== "object" || Array.isArray(found)) throw new Error("The arguments have to be a JSON object, such as {\"name\": \"value\"}.");
    return found;
  };
  const problem = el("p", { class: "problem", role: "alert" });
  const toggle = button("As JSON", { kind: "small" }, () => {
    try {
      const now = read();
      problem.textContent = "";
      if (part) showRaw(now);
      else showFields(now);
      toggle.lastChild.textContent = part ? "As JSON" : "As a form";
    } catch (error) {
      problem.textContent = error.message;
    }
  });
  if (hasFields) showFields(value);
  else showRaw(value);
  return {
    element: el("div", { class: "form" }, place, problem, hasFields ? toggle : null),
    read() {
      problem.textContent = "";
      try {
        return read();
      } catch (error) {
        problem.textContent = error.message;
        throw error;
      }
    },
  };
}
