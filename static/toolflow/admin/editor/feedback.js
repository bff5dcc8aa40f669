"use strict";

// Says while one types what is wrong with a schema or an expression. The server checks, by the code that saving uses.
// Nothing is asked before a field is written in; further tools are loaded then, too.

window.ToolFlow = window.ToolFlow || {};

(function () {
  const FIELDS = "#flow_form textarea.code";
  const SCHEMAS = "#flow_form textarea[name$=input_schema], #flow_form textarea[name$=output_schema]";
  const NO_STEP = ".grp-predelete, .djn-empty-form";
  const SETTLED = 300; // milliseconds without a key
  const MOST_SCHEMAS = 150_000; // characters that are sent along with an expression
  const MOST_CHECKED = 40; // fields that are checked again when steps move, come or go

  const { cards } = window.ToolFlow;
  const form = () => document.getElementById("flow_form");
  const isSchema = (field) => field.name.endsWith("_schema");
  const asking = new WeakMap(); // field → what ends its request
  const timers = new WeakMap();
  const checked = new WeakMap(); // field → what was asked of it last, and is answered
  const waiting = new Set(); // fields whose checks pause
  let pausedUntil = 0;
  let isAway = false;
  let parts = null;
  let settling = 0; // the timer of checks after steps moved

  // ----- The server -----

  // What the server answers, as JSON. An error that comes instead has a sentence for people; `wait` are the seconds
  // until it makes sense to ask again.
  async function ask(address, question, signal) {
    const token = form().querySelector("[name=csrfmiddlewaretoken]").value;
    const options = question && {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-CSRFToken": token },
      body: JSON.stringify(question),
    };
    let response;
    try {
      response = await fetch(address, { signal, ...options });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw fail("The server can’t be reached.", { wait: 10, isAway: true });
    }
    const isJson = (response.headers.get("Content-Type") || "").startsWith("application/json");
    const answer = isJson ? await response.json() : {};
    if (response.ok && isJson && !response.redirected) return answer;
    if (response.redirected) throw fail("You are signed out: sign in again in another tab.", { wait: 10 });
    const sentence = answer.error || `The server did not answer as it should (${response.status}).`;
    throw fail(sentence, { wait: Number(response.headers.get("Retry-After")) || (response.status >= 500 ? 10 : 0) });
  }

  const fail = (sentence, details) => Object.assign(new Error(sentence), details);

  // What is to be known of fields, and the scripts of their tools; fetched once.
  function load() {
    parts =
      parts ||
      ask(form().dataset.feedbackUrl)
        .then(async (known) => {
          for (const script of known.scripts) await import(script);
          return known;
        })
        .catch((error) => {
          parts = null;
          throw error;
        });
    return parts;
  }

  // ----- The steps of the page -----

  const listSteps = () => cards.listKept(cards.stepsGroup());

  // The index of the field's step, counted from 1 as in expressions.
  const findStep = (field) => listSteps().indexOf(field.closest(".step")) + 1;

  // Only what the expression may read.
  function gatherSchemas(field) {
    const step = findStep(field);
    const indices = new Set([0, step - 1, step]);
    for (const match of field.value.matchAll(/\bsteps\s*\[\s*(\d{1,2})/g)) indices.add(Number(match[1]));
    const schemas = {};
    let left = MOST_SCHEMAS;
    listSteps().forEach((card, position) => {
      if (!indices.has(position + 1)) return;
      const [text, type] = ["output_schema", "output_type"].map((name) => cards.fieldOf(card, name).value);
      schemas[position + 1] = { text, type };
    });
    schemas[0] = { text: form().elements.input_schema.value, type: "" };
    for (const index of Object.keys(schemas)) {
      left -= schemas[index].text.length;
      if (left < 0) delete schemas[index];
    }
    return schemas;
  }

  // ----- Below a field -----

  function showStatus(field, tone, sentence, remarks = []) {
    const bar = window.ToolFlow.fieldTools(field);
    let box = bar.querySelector(":scope > .field-status");
    if (!box) {
      box = document.createElement("div");
      box.className = "field-status";
      const line = document.createElement("p");
      line.setAttribute("role", "status");
      box.append(line);
      bar.prepend(box);
    }
    const line = box.firstElementChild;
    line.id = `${field.id}_status`;
    const ids = (field.getAttribute("aria-describedby") || "").split(/\s+/).filter((id) => id && !id.endsWith("_status"));
    field.setAttribute("aria-describedby", [...ids, line.id].join(" "));
    const isWrong = tone === "wrong";
    if (isWrong || field.hasAttribute("aria-invalid")) field.setAttribute("aria-invalid", isWrong);
    // What stays the same is not announced again.
    if (line.dataset.tone === tone && line.dataset.words === sentence + JSON.stringify(remarks)) return;
    line.dataset.tone = tone;
    line.dataset.words = sentence + JSON.stringify(remarks);
    box.querySelectorAll("ul").forEach((list) => list.remove());
    if (remarks.length === 1 && !sentence) {
      line.replaceChildren(makeRemark(remarks[0]));
      return;
    }
    line.textContent = sentence;
    if (!remarks.length) return;
    const list = document.createElement("ul");
    list.append(...remarks.map((remark) => {
      const item = document.createElement("li");
      item.append(makeRemark(remark));
      return item;
    }));
    box.append(list);
  }

  function makeRemark(remark) {
    const element = document.createElement(remark.line ? "button" : "span");
    element.className = "remark";
    if (remark.line) Object.assign(element, { type: "button", title: "Go there" });
    if (remark.line) Object.assign(element.dataset, { line: remark.line, column: remark.column });
    // What is said of the whole has the empty path.
    const path = remark.path || (remark.line && !remark.message.startsWith("Line ") ? "root" : "");
    if (path) element.append(Object.assign(document.createElement("code"), { textContent: path }), ": ");
    element.append(remark.message);
    return element;
  }

  function showFeedback(field, { problems, more, warnings, summary }) {
    const count = problems.length + (more || 0);
    if (count === 1) showStatus(field, "wrong", "", problems);
    else if (count) {
      const rest = more ? [{ message: `${more} more.` }] : [];
      showStatus(field, "wrong", `${count} problems to fix:`, [...problems, ...rest]);
    } else if (warnings.length) {
      const words = warnings.length === 1 ? "1 warning:" : `${warnings.length} warnings:`;
      showStatus(field, "doubtful", `${summary}, ${words}`, warnings);
    } else showStatus(field, "right", summary);
  }

  // ----- Checks -----

  async function check(field, { again = false } = {}) {
    clearTimeout(timers.get(field));
    if (asking.has(field)) asking.get(field).abort();
    if (!field.value.trim()) {
      checked.delete(field);
      return showStatus(field, "", "");
    }
    if (Date.now() < pausedUntil) return pause(field, "");
    const question = { field: window.ToolFlow.fieldKind(field), text: field.value };
    if (!isSchema(field)) Object.assign(question, { step: findStep(field), schemas: gatherSchemas(field) });
    const audit = field.closest(".audit");
    if (audit) question.for_each = cards.fieldOf(audit, "for_each").value;
    const key = JSON.stringify(question);
    if (!again && checked.get(field) === key) return;
    checked.delete(field);
    const ending = new AbortController();
    asking.set(field, ending);
    try {
      const answer = await ask(form().dataset.feedbackUrl, question, ending.signal);
      isAway = false;
      checked.set(field, key);
      showFeedback(field, answer);
    } catch (error) {
      if (error.name === "AbortError") return;
      if (!error.wait) return showStatus(field, "paused", error.message);
      pausedUntil = Date.now() + error.wait * 1000;
      const isNews = !(error.isAway && isAway);
      isAway = Boolean(error.isAway);
      setTimeout(resume, error.wait * 1000);
      pause(field, isNews ? `${error.message} Checks pause; saving checks everything.` : "");
    }
  }

  // Told once, by the field that found out; the others just say no more what may be wrong by now.
  function pause(field, sentence) {
    waiting.add(field);
    const line = document.getElementById(`${field.id}_status`);
    if (sentence || !line || line.dataset.tone !== "paused") showStatus(field, sentence ? "paused" : "", sentence);
  }

  function resume() {
    const fields = [...waiting].filter((field) => field.isConnected);
    waiting.clear();
    fields.forEach((field) => check(field));
  }

  function schedule(field) {
    clearTimeout(timers.get(field));
    timers.set(field, setTimeout(check, SETTLED, field));
  }

  // Which step “steps[1]” is, and whether it can be read, changes with the order of the steps.
  async function checkReferences() {
    const isAffected = (field) => /\bsteps\s*\[/.test(field.value) && !isSchema(field) && !field.closest(NO_STEP);
    const round = settling;
    const affected = [...document.querySelectorAll(FIELDS)].filter(isAffected);
    for (const field of affected.slice(0, MOST_CHECKED)) if (round === settling) await check(field);
  }

  // ----- Tools of schemas: made when they come into view -----

  const seen = new IntersectionObserver(
    (entries) => {
      for (const { isIntersecting, target } of entries) {
        if (!isIntersecting) continue;
        seen.unobserve(target);
        addSchemaTools(target);
      }
    },
    { rootMargin: "200px" },
  );

  function addSchemaTools(field) {
    const bar = window.ToolFlow.fieldTools(field);
    if (bar.querySelector("[data-schema-tool]")) return;
    const tools = field.name.endsWith("output_schema") ? ["Format", "Make strict"] : ["Format"];
    for (const words of tools) {
      const button = Object.assign(document.createElement("button"), { type: "button", textContent: words });
      button.className = "tf-button tf-small";
      button.dataset.schemaTool = words === "Format" ? "format" : "makeStrict";
      bar.append(button);
    }
  }

  // ----- Events -----

  const fieldOf = (element) => element.closest(".field-tools").parentElement.querySelector("textarea.code");

  document.addEventListener("focusin", ({ target }) => {
    if (!target.matches(FIELDS)) return;
    showStatusLine(target);
    check(target);
    load().then((known) => {
      if (!isSchema(target) && document.activeElement === target) window.ToolFlow.openValues(target, known);
    }, () => {});
  });

  // It must be there before it says something: only then is that announced.
  function showStatusLine(field) {
    if (!window.ToolFlow.fieldTools(field).querySelector(":scope > .field-status")) showStatus(field, "", "");
  }

  document.addEventListener("input", ({ target }) => {
    if (target.matches(FIELDS)) schedule(target);
  });

  document.addEventListener("click", ({ target }) => {
    const remark = target.closest("button.remark");
    if (remark) {
      const { line, column } = remark.dataset;
      load().then(() => window.ToolFlow.goToPlace(fieldOf(remark), Number(line), Number(column)), () => {});
    }
    const tool = target.closest("[data-schema-tool]");
    if (!tool) return;
    const field = fieldOf(tool);
    load().then(
      () => window.ToolFlow.schemaTools[tool.dataset.schemaTool](field),
      (error) => showStatus(field, "paused", `${error.message} Try again in a moment.`),
    );
  });

  document.addEventListener("formset:added", ({ target }) => {
    target.querySelectorAll(SCHEMAS).forEach((field) => seen.observe(field));
  });

  for (const name of ["formset:moved", "formset:added", "formset:removed"]) {
    document.addEventListener(name, () => {
      clearTimeout(settling);
      settling = setTimeout(checkReferences, SETTLED);
    });
  }

  document.addEventListener("DOMContentLoaded", () => {
    document.querySelectorAll(SCHEMAS).forEach((field) => seen.observe(field));
  });

  Object.assign(window.ToolFlow, { ask, showFeedback, showStatus, checkField: check, listSteps, findStep });
})();
