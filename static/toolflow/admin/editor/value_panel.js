"use strict";

// Below the expression that is being written: what it must give, its variables with what they held in an earlier run,
// and all functions. One panel for the whole page; it goes where the writing is.

window.ToolFlow = window.ToolFlow || {};

(function () {
  const FRESH = 60_000; // milliseconds that values are not asked for again
  const SETTLED = 150; // milliseconds that a field is written in before values are fetched
  const { ask, cards, replaceText, insertPath, listSteps, findStep, fieldKind } = window.ToolFlow;

  const fetched = new Map(); // question → { time, answer }
  let panel = null;
  let field = null; // the one that the panel belongs to
  let known = null;
  let chosenRun = null;
  let timer = 0;
  let asking = null;
  let dismissed = null;

  const make = (tag, properties, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };

  // ----- The panel -----

  function build() {
    const close = make("button", { type: "button", className: "tf-quiet value-close", title: "Close (Esc)" });
    close.append(make("span", { className: "visually-hidden", textContent: "Close variables and functions" }));
    close.addEventListener("click", dismiss);
    const runs = make("select", { id: "value_run" });
    runs.addEventListener("change", () => {
      chosenRun = Number(runs.value);
      fetchValues();
    });
    const tree = window.ToolFlow.makeValueTree({
      label: "Variables; Enter puts a path into the field",
      choose: (path) => insertPath(field, path),
    });
    const search = make("input", { type: "search", placeholder: "Find a function" });
    search.setAttribute("aria-label", "Find a function");
    search.addEventListener("input", showFunctions);
    // Enter in a field of a form sends the form.
    search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") event.preventDefault();
    });
    const note = make("p", { className: "value-notice" });
    note.setAttribute("role", "status");
    const source = make("div", { className: "value-source" }, make("label", { htmlFor: runs.id }, "Values of"), runs);
    const functions = make("ul", { className: "function-list" });
    const summary = make("summary", {}, "Functions");
    const fold = make("details", { className: "value-functions" }, summary, search, functions);
    const gives = make("p", { className: "value-gives" });
    const element = make("section", { className: "value-panel" });
    element.append(gives, close, source, note, tree.element, fold);
    element.setAttribute("aria-label", "Variables and functions");
    return { element, gives, source, runs, note, tree, search, functions, fold };
  }

  function showFunctions() {
    const wanted = panel.search.value.trim().toLowerCase();
    const named = fieldKind(field) === "rule" ? known.audits : known.python_functions;
    const found = [...known.functions, ...named].filter(
      ({ usage, gives }) => usage.toLowerCase().includes(wanted) || gives.toLowerCase().includes(wanted),
    );
    panel.functions.replaceChildren(
      ...found.map(({ usage, gives }) => {
        const button = make("button", { type: "button", textContent: usage });
        button.addEventListener("click", () => insertFunction(usage));
        return make("li", {}, button, " ", gives);
      }),
    );
    if (!found.length) panel.functions.append(make("li", {}, "There is no such function."));
  }

  // A Python function stands alone; of a method, what it is called on stands there already.
  function insertFunction(usage) {
    if (usage.startsWith("python:")) return replaceText(field, 0, field.value.length, usage);
    const method = /^(?:list|map|text|x|time|optional)(\..*)$/.exec(usage);
    replaceText(field, field.selectionStart, field.selectionEnd, method ? method[1] : usage);
  }

  // ----- Values of an earlier run -----

  function askForValues() {
    const names = listSteps().map(cards.nameOf);
    const kind = fieldKind(field);
    const question = { flow: flowKey(), step: findStep(field), names, field: kind, run: chosenRun };
    if (known.fields[kind].variables.includes("item")) {
      // The list that the item is an element of.
      const [forEach, rule] = ["for_each", "rule"].map((name) => cards.fieldOf(field.closest(".audit"), name).value);
      question.rule = forEach.trim() || rule;
    }
    const key = JSON.stringify(question);
    const before = fetched.get(key);
    if (before && Date.now() - before.time < FRESH) return Promise.resolve(before.answer);
    if (asking) asking.abort();
    asking = new AbortController();
    return ask(document.getElementById("flow_form").dataset.valuesUrl, question, asking.signal).then((answer) => {
      fetched.set(key, { time: Date.now(), answer });
      return answer;
    });
  }

  const flowKey = () => Number(document.getElementById("flow_form").dataset.flow);

  // The variables are known from the start; what they held comes later and moves nothing above it.
  function showVariables() {
    const names = known.fields[fieldKind(field)].variables;
    panel.tree.show(names.map((name) => ({ name, note: known.variables[name], tree: null })));
  }

  // ----- Types, where there are no values -----

  // What the schemas on the page say, by variable; null where they say nothing.
  function outlineVariables() {
    const { outlineSchema } = window.ToolFlow;
    const steps = listSteps();
    const own = Math.max(1, findStep(field)); // a deleted step has no number
    const inputSchema = document.getElementById("flow_form").elements.input_schema;
    const read = (index, segment) => {
      const source = index && steps[index - 1] ? cards.fieldOf(steps[index - 1], "output_schema") : inputSchema;
      return outlineSchema(segment, source.value);
    };
    const outlineStep = (_, index) => ({
      segment: `[${index}]`,
      preview: index ? `“${cards.nameOf(steps[index - 1])}”` : "the input",
      parts: [
        { segment: ".name", preview: "text" },
        read(index, ".output") || { segment: ".output", preview: "" },
        { segment: ".issues", preview: "list" },
        { segment: ".passed", preview: "true or false" },
      ],
    });
    const parts = Array.from({ length: own }, outlineStep);
    return {
      output: read(own, "output"),
      previous: read(own - 1, "previous"),
      input: read(0, "input"),
      steps: { segment: "steps", preview: cards.plural(own, "element"), parts },
    };
  }

  function showTypes(told) {
    const outlines = outlineVariables();
    const names = known.fields[fieldKind(field)].variables;
    panel.tree.show(names.map((name) => ({ name, note: known.variables[name], tree: outlines[name] || null })));
    const isTyped = names.some((name) => name !== "steps" && outlines[name]);
    const awaited = `${isTyped ? "Types from the schemas; real" : "Real"} values stand here once the flow has run.`;
    panel.note.textContent = told ? `${told}${isTyped ? " Types from the schemas are shown instead." : ""}` : awaited;
  }

  async function fetchValues() {
    const owner = field;
    try {
      const answer = await askForValues();
      if (field !== owner) return;
      panel.source.hidden = !answer.runs.length;
      if (!answer.runs.length) return showTypes(answer.note);
      panel.note.textContent = answer.note;
      panel.runs.replaceChildren(
        ...answer.runs.map(({ id, words }) => make("option", { value: id, textContent: words, selected: id === answer.run })),
      );
      panel.tree.show(answer.variables);
    } catch (error) {
      if (error.name === "AbortError" || field !== owner) return;
      chosenRun = null;
      showTypes(`Values of earlier runs: ${error.message}`);
    }
  }

  // ----- Opening and closing -----

  let isPressed = false;
  let postponed = null;

  // What is under the pointer must not move before it is let go, or a click would miss.
  function whenReleased(act) {
    if (isPressed) postponed = act;
    else act();
  }

  function release() {
    isPressed = false;
    const act = postponed;
    postponed = null;
    if (act) setTimeout(act);
  }

  // Changes the page above an element without moving the element for whoever looks at it.
  function keepInPlace(element, change) {
    const before = element.getBoundingClientRect().top;
    change();
    window.scrollBy(0, element.getBoundingClientRect().top - before);
  }

  function close() {
    clearTimeout(timer);
    if (asking) asking.abort();
    if (panel) panel.element.remove();
    field = null;
  }

  // By Escape or the button: the field is written in again, without the panel until one comes back to it.
  function dismiss() {
    dismissed = field;
    close();
    dismissed.focus({ preventScroll: true });
  }

  function open(target, reference) {
    if (field === target || !target.isConnected) return;
    known = reference;
    panel = panel || build();
    keepInPlace(target, () => {
      close();
      field = target;
      const kind = known.fields[fieldKind(field)];
      panel.gives.textContent = `Gives ${kind.gives}.`;
      panel.note.textContent = "";
      panel.source.hidden = true;
      panel.search.value = "";
      panel.fold.open = false;
      if (flowKey()) showVariables();
      else showTypes();
      showFunctions();
      window.ToolFlow.fieldTools(field).append(panel.element);
    });
    if (flowKey()) timer = setTimeout(fetchValues, SETTLED);
  }

  document.addEventListener("pointerdown", () => (isPressed = true), true);
  for (const name of ["pointerup", "pointercancel", "dragend"]) document.addEventListener(name, release, true);

  document.addEventListener("focusin", ({ target }) => {
    if (target !== dismissed) dismissed = null;
    if (!field || target === field || panel.element.contains(target)) return;
    whenReleased(() => {
      if (field && document.activeElement !== field && !panel.element.contains(document.activeElement)) {
        keepInPlace(target, close);
      }
    });
  });

  document.addEventListener(
    "keydown",
    (event) => {
      if (event.key !== "Escape" || !field || !(event.target === field || panel.element.contains(event.target))) return;
      event.preventDefault();
      event.stopPropagation();
      dismiss();
    },
    true,
  );

  window.ToolFlow.openValues = (target, reference) => {
    whenReleased(() => {
      if (document.activeElement === target && target !== dismissed) open(target, reference);
    });
  };
})();
