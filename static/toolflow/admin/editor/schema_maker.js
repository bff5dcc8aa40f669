"use strict";

// Makes schemas for people who don't write JSON Schema, from an example or from a Python type, and shows the present one
// as a table. The server makes them; the dialog is loaded when it is first asked for.

document.addEventListener("DOMContentLoaded", () => {
  const form = document.getElementById("flow_form");
  if (!form) return;
  const SCHEMAS = "textarea[name=input_schema], textarea[name$=-output_schema]";
  const SETTLED = 400; // milliseconds without a key

  const replaced = new WeakMap(); // field → what “Undo” brings back
  let dialog = null;
  let loading = null;
  let target = null; // the field that the schema is for
  let shown = null; // its text when the dialog was opened
  let tab = "";
  let made = "";
  let timer = 0;
  let asking = null;

  const find = (name) => dialog.querySelector(`[data-maker="${name}"]`);
  const isInput = () => target.name === "input_schema";
  const typeField = () => form.elements[target.name.replace(/output_schema$/, "output_type")];

  async function ask(question, signal) {
    const headers = {
      "Content-Type": "application/json",
      "X-CSRFToken": form.querySelector("[name=csrfmiddlewaretoken]").value,
    };
    const body = JSON.stringify({ field: isInput() ? "input_schema" : "output_schema", ...question });
    try {
      const response = await fetch(form.dataset.schemaUrl, { method: "POST", headers, body, signal });
      if (response.redirected) return fail("You are signed out. Sign in again to make schemas.");
      if (!(response.headers.get("Content-Type") || "").startsWith("application/json")) {
        return fail("The server did not make a schema. Reload the page, and try again.");
      }
      const answer = await response.json();
      return answer.error ? fail(answer.error) : answer;
    } catch (error) {
      if (error.name === "AbortError") return null;
      return fail("The server can’t be reached. Try again in a moment.");
    }
  }

  const fail = (message) => ({ problems: [{ path: "", message }] });

  function currentQuestion() {
    if (tab === "example") {
      const text = dialog.querySelector("#maker-example-text").value;
      return text.trim() ? { make: "example", text, with_descriptions: find("descriptions").checked } : null;
    }
    if (tab === "type") {
      const chosen = dialog.querySelector("[name=maker-type]:checked");
      return chosen ? { make: "type", text: chosen.value } : null;
    }
    return target.value.trim() ? { make: "table", text: target.value } : null;
  }

  // A schema can be used once it is that of what stands in the dialog now.
  function refresh(delay) {
    show({}, true);
    clearTimeout(timer);
    if (asking) asking.abort();
    timer = setTimeout(async () => {
      const question = currentQuestion();
      if (!question) return show({});
      asking = new AbortController();
      const answer = await ask(question, asking.signal);
      if (answer) show(answer);
    }, delay);
  }

  function show(answer, isWaiting) {
    made = answer.schema || "";
    for (const name of ["use", "use-type", "copy-type"]) find(name).disabled = !made;
    // The last schema stays until there is another one: a preview that comes and goes is hard to read.
    if (isWaiting) return;
    dialog.querySelector("[data-maker-preview]").textContent = tab === "table" ? target.value : made;
    showRows(answer.rows || []);
    const problems = answer.problems || [];
    dialog.querySelector("[data-maker-told]").replaceChildren(
      ...problems.map((problem) => makeSentence("problem", problem.message)),
      ...(answer.notes || []).map((note) => makeSentence("note", note)),
    );
  }

  const makeCode = (text) => Object.assign(document.createElement("code"), { textContent: text });

  function makeSentence(kind, text) {
    const sentence = dialog.querySelector(`[data-maker-${kind}]`).content.firstElementChild.cloneNode(true);
    const place = /`([^`]*)`/.exec(text);
    const [before, after] = place ? [text.slice(0, place.index), text.slice(place.index + place[0].length)] : [text, ""];
    sentence.querySelector("span").append(before, ...(place ? [makeCode(place[1])] : []), after);
    return sentence;
  }

  function showRows(rows) {
    const table = dialog.querySelector("[data-maker-table]");
    table.hidden = !rows.length;
    dialog.querySelector("[data-maker-empty]").hidden = Boolean(target.value.trim());
    table.tBodies[0].replaceChildren(...rows.map(makeRow));
  }

  function makeRow(row) {
    const line = document.createElement("tr");
    const name = Object.assign(document.createElement("th"), { scope: "row" });
    name.append(makeCode(row.name));
    line.append(name);
    for (const text of [row.kind, row.is_required ? "Yes" : "No", row.description, row.rules]) {
      line.append(Object.assign(document.createElement("td"), { textContent: text }));
    }
    return line;
  }

  function hideOthers() {
    for (const only of dialog.querySelectorAll("[data-maker-only]")) {
      only.hidden = only.dataset.makerOnly !== (isInput() ? "input" : "output");
    }
  }

  function selectTab(name) {
    tab = name;
    for (const button of dialog.querySelectorAll("[data-maker-tab]")) {
      const isSelected = button.dataset.makerTab === name;
      button.setAttribute("aria-selected", String(isSelected));
      button.tabIndex = isSelected ? 0 : -1;
    }
    for (const panel of dialog.querySelectorAll("[data-maker-panel]")) panel.hidden = panel.dataset.makerPanel !== name;
    find("use").hidden = name !== "example";
    find("copy-type").hidden = name !== "type";
    find("copy-type").classList.toggle("tf-main", isInput());
    find("use-type").hidden = name !== "type" || isInput();
    show({});
    refresh(0);
  }

  async function load() {
    const response = await fetch(form.dataset.schemaUrl);
    const loaded = new DOMParser().parseFromString(await response.text(), "text/html").querySelector("dialog");
    if (!loaded) throw new Error("no dialog");
    document.body.append(loaded);
    return loaded;
  }

  async function open(button) {
    try {
      loading = loading || load();
      dialog = await loading;
    } catch {
      loading = null;
      button.textContent = "Make a schema… (the server did not answer; try again)";
      return;
    }
    const field = fieldOf(button);
    // Whoever closed the dialog by mistake finds it as it was.
    const isSame = field === target && field.value === shown;
    target = field;
    shown = field.value;
    const card = field.closest(".step");
    const name = card && card.querySelector(`[name=${card.id}-name]`).value;
    dialog.querySelector("[data-maker-for]").textContent = isInput()
      ? "for the input of the flow"
      : `for the output of ${name ? `“${name}”` : "the step"}`;
    const type = isInput() ? "" : typeField().value;
    const warning = dialog.querySelector("[data-maker-warning]");
    warning.hidden = !type;
    warning.textContent = `The step has the Python type “${type}”. The schema replaces it.`;
    if (!isSame) {
      dialog.querySelector("#maker-example-text").value = "";
      find("descriptions").checked = false;
      for (const choice of dialog.querySelectorAll("[name=maker-type]")) choice.checked = choice.value === type;
      hideOthers();
      selectTab(type ? "type" : field.value.trim() ? "table" : "example");
    }
    dialog.showModal();
    dialog.querySelector("[role=tab][aria-selected=true]").focus();
  }

  const fieldOf = (button) => button.closest(".field-tools").parentElement.querySelector("textarea");

  function write(field, text) {
    field.value = text;
    for (const name of ["input", "change"]) field.dispatchEvent(new Event(name, { bubbles: true }));
  }

  function use(text, type) {
    const other = isInput() ? null : typeField();
    replaced.delete(target);
    const before = { text: target.value, other, type: other && other.value };
    write(target, text);
    if (other && other.value !== type) {
      write(other, type);
      const fold = other.closest("details.tf-fold");
      if (fold) fold.open = true;
    }
    replaced.set(target, { ...before, after: text });
    showUndo(target);
    dialog.close();
  }

  function showUndo(field) {
    const bar = window.ToolFlow.fieldTools(field);
    const present = bar.querySelector("[data-undo-schema]");
    if (present) present.remove();
    if (!replaced.has(field)) return;
    const button = makeButton("Undo", "undoSchema");
    const rest = { className: "visually-hidden", textContent: " replacing the schema" };
    button.append(Object.assign(document.createElement("span"), rest));
    bar.querySelector("[data-make-schema]").after(button);
  }

  function makeButton(words, mark) {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: words });
    button.className = "tf-button tf-small";
    button.dataset[mark] = "";
    return button;
  }

  function addButtons(part) {
    for (const field of part.querySelectorAll(SCHEMAS)) {
      if (field.closest(".djn-empty-form")) continue;
      const bar = window.ToolFlow.fieldTools(field);
      if (!bar.querySelector("[data-make-schema]")) bar.prepend(makeButton("Make a schema…", "makeSchema"));
      // A copy of a card has copies of its buttons.
      showUndo(field);
    }
  }

  const clicks = {
    close: () => dialog.close(),
    use: () => use(made, ""),
    "copy-type": () => use(made, ""),
    "use-type": () => use("", dialog.querySelector("[name=maker-type]:checked").value),
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if ("makeSchema" in button.dataset) {
      open(button);
    } else if ("undoSchema" in button.dataset) {
      const field = fieldOf(button);
      const { text, other, type } = replaced.get(field);
      replaced.delete(field);
      write(field, text);
      if (other) write(other, type);
      field.focus();
    } else if (dialog && dialog.contains(button)) {
      if (button.dataset.makerTab) selectTab(button.dataset.makerTab);
      const act = clicks[button.dataset.maker];
      if (act) act(button);
    }
  });

  document.addEventListener("input", (event) => {
    const field = event.target;
    if (dialog && dialog.contains(field)) {
      refresh(field.matches("[type=checkbox], [type=radio]") ? 0 : SETTLED);
    } else if (field.matches(SCHEMAS) && form.contains(field)) {
      // What was written since would be lost.
      if (replaced.has(field) && replaced.get(field).after !== field.value) replaced.delete(field);
      showUndo(field);
    }
  });

  document.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !event.target.matches("[data-maker-tab]")) return;
    const tabs = [...dialog.querySelectorAll("[data-maker-tab]")];
    const next = tabs[(tabs.indexOf(event.target) + step + tabs.length) % tabs.length];
    selectTab(next.dataset.makerTab);
    next.focus();
  });

  document.addEventListener("formset:added", (event) => addButtons(event.target));
  addButtons(form);
});
