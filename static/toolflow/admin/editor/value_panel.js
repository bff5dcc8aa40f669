"use strict";

// Below the expression that is being written: what it must give, its variables with what they held in an earlier run,
// and all functions. One panel for the whole page; “Variables” opens it, Escape closes it.

(function () {
  const { flow, fields, make, stamp, ask, learn, plural } = window.ToolFlow;
  if (!flow) return;
  const LIKE = { message_template: "message", system_message: "input_expression", for_each: "rule" };
  const GIVES = {
    message_template: "Text with paths in braces, such as {item.number}.",
    system_message: "Text. {input.…}, {steps[1].output.…} and {previous.…} are placeholders.",
    for_each: "Gives a list: the rule is asked of every item.",
  };

  let panel = null;
  let field = null; // the one that the panel belongs to
  let known = null;
  let chosenRun = null;
  let asking = null;

  const kindOf = (one) => LIKE[one.dataset.field] || one.dataset.field;
  const auditOf = (one) => flow.get(one.closest("[data-audit]")?.dataset.base ?? "/none") || {};
  const listVariables = (language, one) => {
    const names = language.fields[kindOf(one)].variables;
    const isAsked = auditOf(one).for_each !== undefined && one.dataset.field !== "for_each";
    return isAsked ? [...new Set(["item", "index", ...names])] : names;
  };

  // The element that an audit's messages are about: of the list that its rule or its “for each” reads.
  function outlineItem({ for_each: list, rule }, outlines) {
    const path = /^\s*([A-Za-z_][\w.[\]]*?)(?:\.(?:filter|map)\(.*)?\s*$/s.exec(String(list ?? rule ?? ""));
    const found = path && window.ToolFlow.followPath(outlines, path[1]);
    return found?.item ? Object.assign(Object.create(found.item), { segment: "item" }) : null;
  }

  function outlineVariables(one) {
    const { outlineSchema } = window.ToolFlow;
    const own = flow.step + 1;
    const steps = flow.steps;
    const read = (index, segment) => outlineSchema(segment, String((index ? steps[index - 1]?.output_schema : flow.get("/input_schema")) ?? ""));
    const outlineStep = (_, index) => ({
      segment: `[${index}]`,
      preview: index ? `“${steps[index - 1].name || "no name yet"}”` : "the input",
      parts: [
        { segment: ".name", preview: "text" },
        read(index, ".output") || { segment: ".output", preview: "" },
        { segment: ".issues", preview: "list" },
        { segment: ".passed", preview: "true or false" },
      ],
    });
    const isInput = one.dataset.field === "input_sanitizer";
    const outlines = {
      output: read(own, "output"),
      value: isInput ? null : read(own, "value"),
      previous: read(own - 1, "previous"),
      input: read(0, "input"),
      steps: { segment: "steps", preview: plural(own, "element"), parts: Array.from({ length: own }, outlineStep) },
    };
    outlines.item = outlineItem(auditOf(one), outlines);
    return outlines;
  }

  function build() {
    const element = stamp("value-panel");
    const find = (name) => element.querySelector(`.value-${name}`);
    const tree = window.ToolFlow.makeValueTree({ label: "Variables; Enter puts a path into the field", choose: insertPath });
    find("functions").before(tree.element);
    const [runs, search] = element.querySelectorAll("select, input");
    runs.addEventListener("change", () => {
      chosenRun = Number(runs.value);
      fetchValues();
    });
    search.addEventListener("input", showFunctions);
    find("head").querySelector("button").addEventListener("click", dismiss);
    const functions = element.querySelector(".function-list");
    return { element, tree, runs, search, functions, gives: find("gives"), source: find("source"), note: find("notice"), fold: find("functions") };
  }

  function showFunctions() {
    const wanted = panel.search.value.trim().toLowerCase();
    const named = kindOf(field) === "rule" ? known.audits : known.python_functions;
    const found = [...known.functions, ...named].filter(({ usage, gives }) => `${usage} ${gives}`.toLowerCase().includes(wanted));
    panel.functions.replaceChildren(
      ...found.map(({ usage, gives }) => {
        const button = make("button", { type: "button", textContent: usage });
        button.addEventListener("click", () => insertFunction(usage));
        return make("li", {}, button, " ", gives);
      }),
    );
    if (!found.length) panel.functions.append(make("li", {}, "There is no such function."));
  }

  // A Python function stands alone; of a method, what it is called on is there already.
  function insertFunction(usage) {
    const control = fields.controlOf(field);
    if (usage.startsWith("python:")) return fields.replaceText(control, 0, control.value.length, usage);
    const method = /^(?:list|map|text|x|time|optional)(\..*)$/.exec(usage);
    fields.replaceText(control, control.selectionStart, control.selectionEnd, method ? method[1] : usage);
  }

  // A beginning of it that is there already is completed; in messages and prompts braces are around it.
  function insertPath(path) {
    const control = fields.controlOf(field);
    const end = control.selectionEnd;
    let start = control.selectionStart;
    const before = control.value.slice(0, start);
    const typed = /[A-Za-z_][\w.[\]]*$/.exec(before);
    const isInText = field.dataset.completes !== "expression";
    const isOpen = /\{[^{}]*$/.test(before);
    if (typed && path.startsWith(typed[0]) && (!isInText || isOpen)) start -= typed[0].length;
    const closing = control.value[end] === "}" ? "" : "}";
    const words = !isInText ? path : isOpen ? `${path}${closing}` : `{${path}}`;
    fields.replaceText(control, start, end, words);
  }

  function askForValues() {
    const names = flow.steps.map((step) => String(step.name ?? ""));
    const question = { flow: flow.data.flow, step: flow.step + 1, names, field: kindOf(field), run: chosenRun };
    if (known.fields[kindOf(field)].variables.includes("item")) {
      const { for_each: list, rule } = auditOf(field);
      question.rule = String(list ?? rule ?? "");
    }
    asking?.abort();
    asking = new AbortController();
    return ask(flow.data.urls.values, question, { signal: asking.signal });
  }

  // Variables by what the schemas say of them.
  function describe(names) {
    const outlines = outlineVariables(field);
    return names.map((name) => ({ name, note: known.variables[name], tree: outlines[name] || null }));
  }

  function showTypes(reason) {
    const variables = describe(listVariables(known, field));
    panel.tree.show(variables);
    const isTyped = variables.some(({ name, tree }) => name !== "steps" && tree);
    const awaited = `${isTyped ? "Types from the schemas; real" : "Real"} values are shown here once the flow has run.`;
    panel.note.textContent = reason ? `${reason}${isTyped ? " Types from the schemas are shown instead." : ""}` : awaited;
  }

  async function fetchValues() {
    const owner = field;
    try {
      const answer = await askForValues();
      if (field !== owner) return;
      panel.source.hidden = !answer.runs.length;
      if (!answer.runs.length) return showTypes(answer.note);
      panel.note.textContent = answer.note;
      panel.runs.replaceChildren(...answer.runs.map(({ id, words }) => make("option", { value: String(id), textContent: words, selected: id === answer.run })));
      const valued = answer.variables.map(({ name }) => name);
      panel.tree.show([...describe(listVariables(known, field).filter((name) => !valued.includes(name))), ...answer.variables]);
    } catch (error) {
      if (error.name === "AbortError" || field !== owner) return;
      chosenRun = null;
      showTypes(`Values of earlier runs: ${error.message}`);
    }
  }

  function close() {
    if (asking) asking.abort();
    panel?.element.remove();
    field?.querySelector("[data-act=values]")?.setAttribute("aria-expanded", "false");
    field = null;
  }

  function dismiss() {
    const control = fields.controlOf(field);
    close();
    control.focus({ preventScroll: true });
  }

  async function open(target) {
    known = await learn();
    if (!target.isConnected) return;
    panel = panel || build();
    close();
    field = target;
    const isAsked = field.dataset.field === "rule" && auditOf(field).for_each !== undefined;
    panel.gives.textContent = isAsked ? "Gives true or false for each item." : GIVES[field.dataset.field] || `Gives ${known.fields[kindOf(field)].gives}.`;
    panel.note.textContent = "";
    panel.source.hidden = true;
    panel.search.value = "";
    panel.fold.open = false;
    panel.fold.hidden = field.dataset.completes !== "expression";
    field.querySelector("[data-act=values]").setAttribute("aria-expanded", "true");
    fields.controlOf(field).after(panel.element);
    showTypes();
    showFunctions();
    if (flow.data.flow) fetchValues();
    panel.tree.element.querySelector("[tabindex='0']")?.focus({ preventScroll: true });
    panel.element.scrollIntoView({ block: "nearest" });
  }

  document.addEventListener("click", ({ target }) => {
    const button = target.closest("[data-act=values]");
    if (!button) return;
    const owner = button.closest("[data-pointer]");
    if (owner === field) dismiss();
    else open(owner).catch(() => {});
  });

  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !field || !field.contains(event.target) || event.defaultPrevented) return;
    event.preventDefault();
    dismiss();
  });

  document.addEventListener("toolflow:part-shown", () => {
    if (field && !field.isConnected) close();
  });

  Object.assign(window.ToolFlow, { outlineVariables, listVariables });
})();
