"use strict";

// The field of a schema: its fields as a table, its JSON, and what makes one – an example, another step, a registered
// type. The JSON is the truth; it is kept as text, also while it is half written.

(function () {
  const { flow, fields, make, icon, ask } = window.ToolFlow;
  if (!flow) return;
  const chosen = new Map(); // pointer → the tab that was chosen

  const find = (field, name) => field.querySelector(`[data-${name}]`);
  const textOf = (field) => find(field, "schema-text").value;
  const fieldOf = (element) => element.closest(".ef-schema") || element.closest(".ask").querySelector(".ef-schema");

  fields.kinds.schema = {
    fill(field, value, pointer) {
      find(field, "schema-text").value = value === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value, null, 2);
      // The label belongs to the text, wherever it is shown.
      const id = `f${pointer.replaceAll("/", "-")}-schema`;
      find(field, "schema-text").id = id;
      field.querySelector("label").htmlFor = id;
      for (const tab of field.querySelectorAll("[role=tab]")) {
        const panel = field.querySelector(`[data-panel="${tab.dataset.tab}"]`);
        [tab.id, panel.id] = [`${id}-${tab.dataset.tab}-tab`, `${id}-${tab.dataset.tab}`];
        tab.setAttribute("aria-controls", panel.id);
        panel.setAttribute("aria-labelledby", tab.id);
      }
      fillChoices(field, pointer);
      if (flow.data.may_change) return choose(field, chosen.get(pointer) || (value === undefined ? "example" : "table"));
      // The server makes tables for those who may change flows.
      field.querySelector("[role=tablist]").hidden = true;
      choose(field, "json");
    },
    read: (field) => (textOf(field).trim() ? textOf(field) : undefined),
  };

  // Where outputs are of a registered type, its schema is made from it when the flow is saved.
  fields.kinds.type = {
    fill(field, value) {
      field.hidden = value === undefined;
      field.querySelector("b").textContent = value ?? "";
      const schema = field.parentElement.querySelector(".ef-schema");
      schema.hidden = value !== undefined && flow.get(schema.dataset.pointer) === undefined;
    },
  };

  function fillChoices(field, pointer) {
    const types = find(field, "schema-type");
    if (types.options.length === 1) types.append(...flow.data.types.map((name) => make("option", { value: name, textContent: name })));
    const select = find(field, "schema-step");
    if (!select) return;
    const own = Number(flow.split(pointer)[1]);
    const others = flow.steps.map((step, index) => [index, step]).filter(([index, step]) => index !== own && step.output_schema !== undefined);
    select.replaceChildren(...others.map(([index, step]) => make("option", { value: String(index), textContent: `${index + 1} ${step.name || "no name yet"}` })));
    field.querySelector("[data-tab=step]").hidden = !others.length;
  }

  function choose(field, name, { focus = false } = {}) {
    const tabs = [...field.querySelectorAll("[role=tab]")];
    for (const tab of tabs) {
      const isChosen = tab.dataset.tab === name;
      tab.setAttribute("aria-selected", String(isChosen));
      tab.tabIndex = isChosen ? 0 : -1;
      field.querySelector(`[data-panel="${tab.dataset.tab}"]`).hidden = !isChosen;
      if (isChosen && focus) tab.focus();
    }
    if (name === "table") showTable(field);
  }

  function showTable(field) {
    const table = field.querySelector(".schema-table");
    const empty = find(field, "schema-empty");
    const source = textOf(field);
    empty.hidden = Boolean(source.trim());
    table.hidden = true;
    if (!source.trim()) return;
    if (table.dataset.source === source) return (table.hidden = false);
    askMaker(field, { make: "table", text: source }).then((answer) => {
      if (!answer || !answer.rows) return;
      table.dataset.source = source;
      table.tBodies[0].replaceChildren(...answer.rows.map(makeRow));
      table.hidden = false;
      if (answer.notes.length) say(field, answer.notes);
    });
  }

  function makeRow({ name, kind, rules, description, is_required: isRequired }) {
    const label = make("th", { scope: "row" }, make("code", { textContent: name }));
    if (!isRequired) label.append(make("span", { className: "quiet", textContent: " optional" }));
    const notes = [rules, description].filter(Boolean).join(" · ");
    return make("tr", {}, label, make("td", { textContent: kind }), make("td", { className: "quiet", textContent: notes, dir: "auto" }));
  }

  async function askMaker(field, question) {
    const before = textOf(field);
    try {
      const answer = await ask(flow.data.urls.schema, { field: field.dataset.field, ...question });
      // The schema was changed meanwhile, or another step has this place.
      if (!field.isConnected || textOf(field) !== before) return null;
      if (answer.problems) {
        say(field, answer.problems.map(({ path, message }) => (path ? `${path}: ${message}` : message)), "wrong");
        return null;
      }
      return answer;
    } catch (error) {
      say(field, [error.message], "wrong");
      return null;
    }
  }

  function say(field, sentences, tone = "note") {
    const sign = () => icon(tone === "wrong" ? "exclamation-circle" : "information-circle");
    // What is between backticks is code.
    const write = (words) => words.split("`").map((part, index) => (index % 2 ? make("code", { textContent: part }) : part));
    find(field, "schema-said").replaceChildren(...sentences.map((words) => make("p", { className: tone }, sign(), make("span", {}, ...write(words)))));
  }

  function take(field, text, tab = "table") {
    chosen.set(field.dataset.pointer, tab);
    const isLeft = !field.contains(document.activeElement) && document.activeElement !== document.body;
    const { pointer } = field.dataset;
    flow.setAll({ [pointer]: text, [pointer.replace("output_schema", "output_type")]: pointer.endsWith("output_schema") ? undefined : text });
    const again = fields.findField(pointer);
    if (!isLeft) again.querySelector(`[data-tab=${tab}]`).focus();
    return again;
  }

  async function makeStrict(field, optional = "") {
    const answer = await askMaker(field, { make: "strict", text: textOf(field), optional });
    if (!answer) return;
    if (!answer.undecided) return say(take(field, answer.schema, "json"), answer.notes.length ? answer.notes : ["The schema is strict already."]);
    const words = `Every property is required in a strict schema. What becomes of ${answer.undecided.slice(0, 5).join(", ")}?`;
    const button = (name, value) => make("button", { type: "button", className: "button button-small", textContent: name, onclick: () => makeStrict(field, value) });
    find(field, "schema-said").replaceChildren(make("p", { textContent: words }), make("p", { className: "panel-row" }, button("May be null", "null"), button("Always given", "given")));
  }

  const acts = {
    async format(field) {
      // The server's JSON: browsers would sort some keys and round some numbers.
      const answer = await askMaker(field, { make: "format", text: textOf(field) });
      if (answer) take(field, answer.schema, "json");
    },
    strict: (field) => makeStrict(field),
    async example(field) {
      const answer = await askMaker(field, { make: "example", text: find(field, "schema-example").value });
      if (answer) say(take(field, answer.schema), answer.notes);
    },
    step(field) {
      take(field, flow.get(`/steps/${find(field, "schema-step").value}/output_schema`));
    },
    async "copy-type"(field) {
      const name = find(field, "schema-type").value;
      if (!name) return say(field, ["Choose a type first."], "wrong");
      const answer = await askMaker(field, { make: "type", text: name });
      if (answer) take(field, answer.schema);
    },
    "use-type"(field) {
      const { pointer } = field.dataset;
      const name = find(field, "schema-type").value;
      if (!name) return say(field, ["Choose a type first."], "wrong");
      flow.setAll({ [pointer]: undefined, [pointer.replace("output_schema", "output_type")]: name });
      document.querySelector("#editor-part [data-schema-act=no-type]")?.focus();
    },
    "no-type"(field) {
      flow.set(field.dataset.pointer.replace("output_schema", "output_type"), undefined);
      fields.findField(field.dataset.pointer).querySelector("[aria-selected=true]").focus();
    },
  };

  const part = document.getElementById("editor-part");
  part.addEventListener("click", ({ target }) => {
    const tab = target.closest(".ef-schema [role=tab]");
    if (tab) {
      const field = fieldOf(tab);
      chosen.set(field.dataset.pointer, tab.dataset.tab);
      choose(field, tab.dataset.tab);
    }
    const button = target.closest("[data-schema-act]");
    if (button && flow.data.may_change) acts[button.dataset.schemaAct](fieldOf(button));
  });

  part.addEventListener("keydown", (event) => {
    const tab = event.target.closest(".ef-schema [role=tab]");
    if (!tab || !["ArrowLeft", "ArrowRight"].includes(event.key)) return;
    event.preventDefault();
    const tabs = [...fieldOf(tab).querySelectorAll("[role=tab]:not([hidden])")];
    const next = tabs[(tabs.indexOf(tab) + (event.key === "ArrowRight" ? 1 : tabs.length - 1)) % tabs.length];
    chosen.set(fieldOf(tab).dataset.pointer, next.dataset.tab);
    choose(fieldOf(tab), next.dataset.tab, { focus: true });
  });

  // What is wrong is searched for in the JSON.
  part.addEventListener("toolflow:reveal", ({ target }) => {
    if (target.matches(".ef-schema") && textOf(target).trim()) choose(target, "json");
  });
})();
