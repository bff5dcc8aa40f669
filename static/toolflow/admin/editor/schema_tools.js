"use strict";

// Lays out a schema, and makes it strict.

window.ToolFlow = window.ToolFlow || {};

(function () {
  const MOST_CHANGES = 8;
  const MOST_NAMES = 6;
  const { ask, replaceText, showFeedback, showStatus, checkField } = window.ToolFlow;
  const before = new WeakMap(); // field → its texts before and after it was made strict

  // The box below a field that says what was done, and asks what there is to decide.
  function report(field, sentence, ...more) {
    const bar = window.ToolFlow.fieldTools(field);
    let box = bar.querySelector(":scope > .schema-report");
    if (!box) {
      box = document.createElement("div");
      box.className = "schema-report";
      box.setAttribute("role", "status");
      bar.append(box);
    }
    const line = document.createElement("p");
    line.textContent = sentence;
    box.replaceChildren(...(sentence ? [line] : []), ...more);
    return box;
  }

  function makeButton(words, act) {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: words });
    button.className = "tf-button tf-small";
    button.addEventListener("click", act);
    return button;
  }

  // Names stand between backticks.
  function writeChange(sentence) {
    const item = document.createElement("li");
    sentence.split("`").forEach((text, index) => {
      item.append(index % 2 ? Object.assign(document.createElement("code"), { textContent: text }) : text);
    });
    return item;
  }

  function listChanges(changes) {
    const list = document.createElement("ul");
    list.append(...changes.slice(0, MOST_CHANGES).map(writeChange));
    if (changes.length > MOST_CHANGES) list.append(writeChange(`${changes.length - MOST_CHANGES} more`));
    return list;
  }

  const rewrite = (field, text) => replaceText(field, 0, field.value.length, text);

  async function format(field) {
    try {
      JSON.parse(field.value);
    } catch {
      field.focus();
      return checkField(field);
    }
    const text = window.ToolFlow.layOutJson(field.value);
    if (text === field.value) return report(field, "It is laid out already.");
    rewrite(field, text);
    report(field, "");
  }

  async function makeStrict(field, optional = "") {
    const text = field.value;
    let answer;
    try {
      answer = await ask(document.getElementById("flow_form").dataset.feedbackUrl, {
        field: "output_schema",
        action: "make_strict",
        optional,
        text,
      });
    } catch (error) {
      return report(field, error.message);
    }
    // Who went on typing meanwhile would lose it.
    if (field.value !== text) return report(field, "The schema changed meanwhile. Try again.");
    const { mending } = answer;
    if (mending && mending.undecided.length) return askAboutOptional(field, mending.undecided);
    showFeedback(field, answer);
    if (!mending) return report(field, "");
    if (!mending.changes.length) {
      const isRight = !answer.problems.length;
      return report(field, isRight ? "Nothing to change: the schema is strict." : "Fix the remaining problems by hand.");
    }
    rewrite(field, mending.text);
    before.set(field, { text, after: field.value });
    const count = mending.changes.length === 1 ? "1 change" : `${mending.changes.length} changes`;
    const undo = makeButton("Undo", () => undoMending(field));
    undo.append(Object.assign(document.createElement("span"), { className: "visually-hidden", textContent: " making strict" }));
    const buttons = Object.assign(document.createElement("div"), { className: "schema-choices" });
    buttons.append(undo);
    report(field, `Made strict: ${count}.`, buttons, listChanges(mending.changes));
  }

  function askAboutOptional(field, names) {
    const shown = names.slice(0, MOST_NAMES).map((name) => `“${name}”`).join(", ");
    const rest = names.length > MOST_NAMES ? ` and ${names.length - MOST_NAMES} more` : "";
    const buttons = document.createElement("div");
    buttons.className = "schema-choices";
    const close = () => {
      report(field, "");
      field.focus();
    };
    buttons.append(
      makeButton("May be null", () => makeStrict(field, "null")),
      makeButton("Always given", () => makeStrict(field, "given")),
      makeButton("Cancel", close),
    );
    const sentence = `Strict mode knows no properties that may be missing. What becomes of ${shown}${rest}?`;
    report(field, sentence, buttons);
    buttons.firstElementChild.focus();
  }

  function undoMending(field) {
    rewrite(field, before.get(field).text);
    before.delete(field);
    report(field, "Undone.");
  }

  // What was said of the text holds no more once somebody writes in it; undoing would lose what they wrote.
  document.addEventListener("input", ({ target: field }) => {
    const box = field.matches("textarea.code") && field.parentElement.querySelector(".field-tools > .schema-report");
    if (!box || (before.has(field) && before.get(field).after === field.value)) return;
    if (before.has(field)) before.delete(field);
    box.replaceChildren();
  });

  window.ToolFlow.schemaTools = { format, makeStrict: (field) => makeStrict(field) };
})();
