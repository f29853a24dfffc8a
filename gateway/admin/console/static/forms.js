// Dialogs that do something. What a dialog asks for is read from what the API tells of the operation
// (OpenAPI), so that what the API learns to do the console can do as well.

import { call, description, operation } from "./api.js";
import { freshId, h, replace } from "./dom.js";
import { words } from "./format.js";

const MULTILINE = new Set(["body", "rules", "body_base64"]);

/** A schema without references, and whether null fits it. */
function plain(schema, components) {
  let found = schema;
  let nullable = false;
  const rest = { ...schema };
  for (;;) {
    if (found.$ref) found = components[found.$ref.split("/").at(-1)];
    else if (found.anyOf) {
      nullable = nullable || found.anyOf.some((each) => each.type === "null");
      const others = found.anyOf.filter((each) => each.type !== "null");
      if (others.length !== 1) return { type: "object", description: rest.description, nullable };
      [found] = others;
    } else break;
  }
  return { ...found, nullable, description: rest.description || found.description };
}

/** What is sent of a field where something stood and nothing does: left out, it would stay. */
function emptied(name, schema) {
  if (schema.type === "array") return [];
  if (schema.nullable) return null;
  throw new Error(`${words(name)} cannot be empty`);
}

function fieldOf(name, schema, given) {
  const id = freshId();
  const label = h("label", { for: id }, words(name));
  let input;
  let read;
  if (schema.type === "boolean") {
    input = h("select", { id, name }, h("option", { value: "" }, "as it is"), h("option", { value: "true" }, "yes"), h("option", { value: "false" }, "no"));
    input.value = given === undefined ? "" : String(given);
    read = () => (input.value === "" ? undefined : input.value === "true");
  } else if (schema.enum) {
    input = h("select", { id, name }, h("option", { value: "" }, ""), schema.enum.map((each) => h("option", { value: each }, each)));
    input.value = given ?? "";
    read = () => input.value || undefined;
  } else if (name === "time_ms") {
    // A moment, which people say by the clock on their wall.
    input = h("input", { id, name, type: "datetime-local", step: 1 });
    read = () => (input.value === "" ? undefined : new Date(input.value).getTime());
  } else if (schema.type === "integer" || schema.type === "number") {
    input = h("input", { id, name, type: "number", min: schema.minimum, max: schema.maximum, step: schema.type === "integer" ? 1 : "any", value: given ?? "" });
    read = () => (input.value === "" ? undefined : Number(input.value));
  } else if (schema.type === "array" || schema.type === "object") {
    const isList = schema.type === "array" && (!schema.items || schema.items.type === "string");
    const said = given === undefined || given === null ? "" : isList ? given.join("\n") : JSON.stringify(given, null, 1);
    input = h("textarea", { id, name, rows: isList ? 3 : 2, spellcheck: "false", placeholder: isList ? "one a line" : "{ } as JSON", value: said });
    read = () => {
      if (!input.value.trim()) return undefined;
      if (!isList) return JSON.parse(input.value);
      return input.value.split("\n").map((each) => each.trim()).filter(Boolean);
    };
  } else {
    const kind = name === "password" ? "password" : "text";
    input = MULTILINE.has(name)
      ? h("textarea", { id, name, rows: 4, spellcheck: "false", value: given ?? "" })
      : h("input", { id, name, type: kind, value: given ?? "", autocomplete: kind === "password" ? "new-password" : "off", spellcheck: "false" });
    read = () => (input.value === "" ? undefined : input.value);
  }
  const stood = input.tagName !== "SELECT" && input.value.trim() !== "";
  const said = () => {
    const value = read();
    return value === undefined && stood ? emptied(name, schema) : value;
  };
  return { name, read: said, input, element: h("div", { class: "field" }, label, input, schema.description && h("p", { class: "help" }, schema.description)) };
}

/**
 * A modal dialog. `run(values)` does it; what it gives back, text or an element, is shown. Without
 * `run` it only says something.
 */
export function dialog({ title, about, fields = [], danger, label = "Do it", run, done, first }) {
  const name = freshId();
  const wrong = h("p", { class: "wrong", role: "alert" });
  const go = h("button", { class: danger ? "danger" : "primary", type: "submit" }, label);
  const close = h("button", { class: "quiet", type: "button", onclick: () => box.close() }, run ? "Cancel" : "Close");
  const form = h("form", {
    novalidate: true,
    onsubmit: async (event) => {
      event.preventDefault();
      replace(wrong);
      go.disabled = true;
      try {
        const values = {};
        for (const each of fields) {
          const value = each.read();
          if (value !== undefined) values[each.name] = value;
        }
        const found = await run(values);
        if (done) done();
        if (found) {
          replace(form, h("h2", { id: name }, title), h("div", { class: "outcome", role: "status" }, found), h("div", { class: "buttons" }, close));
          close.textContent = "Close";
          close.focus();
        } else box.close();
      } catch (error) {
        replace(wrong, error instanceof SyntaxError ? `this is no JSON: ${error.message}` : error.message);
      } finally {
        go.disabled = false;
      }
    },
  }, h("h2", { id: name }, title), about && h("p", { class: "about" }, about), fields.map((each) => each.element), wrong, h("div", { class: "buttons" }, close, run && go));
  const before = document.activeElement;
  const box = h("dialog", { "aria-labelledby": name, onclose: () => { box.remove(); if (before && before.isConnected) before.focus(); } }, form);
  document.body.append(box);
  box.showModal();
  const input = first || (fields[0] && fields[0].input);
  (input || (danger || !run ? close : go)).focus();
}

/**
 * The fields of an operation's body. `given`: values that stand there already; `only`: names of those
 * that are asked for.
 */
async function fieldsOf(found, given, only) {
  const content = found.requestBody && found.requestBody.content["application/json"];
  if (!content) return [];
  const { schemas } = (await description()).components;
  const schema = plain(content.schema, schemas);
  const required = new Set(schema.required || []);
  const names = Object.keys(schema.properties || {}).filter((name) => !only || only.includes(name));
  names.sort((one, other) => required.has(other) - required.has(one));
  return names.map((name) => fieldOf(name, plain(schema.properties[name], schemas), given[name]));
}

/**
 * Ask for what an operation takes, and do it. `names`: of its path; `given`: of its body; `only`: the
 * fields that are asked for, `always`: what is sent besides.
 */
export async function ask({ method, template, names = {}, query = {}, given = {}, only, always = {}, title, about, label, danger, done, told }) {
  const found = await operation(method, template);
  if (!found) return;
  const fields = await fieldsOf(found, given, only);
  const where = template.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(names[name]));
  dialog({
    title: title || found.summary,
    about: about || (title ? found.summary : undefined),
    fields,
    danger,
    label,
    done,
    run: async (values) => {
      const has = Boolean(found.requestBody);
      const answer = await call(method, where, { query, body: has ? { ...always, ...values } : undefined });
      return told ? told(answer) : undefined;
    },
  });
}

/** A button for `ask`; nothing where the API has no such operation, or only for others. */
export async function actionButton(asked) {
  const found = await operation(asked.method, asked.template);
  if (!found) return null;
  return h("button", { type: "button", class: asked.danger ? "danger" : asked.quiet ? "quiet" : "primary", onclick: () => ask(asked) }, asked.button || asked.title);
}
