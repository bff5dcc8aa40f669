"use strict";

// Below a field of the editor: one bar for the buttons and words that other scripts put there. A page with twenty steps
// has hundreds of fields, so that bars are made only where something is to stand in them.

window.ToolFlow = window.ToolFlow || {};

// The last part of a field's name says what it is: “rule” for “steps-0-audits-1-rule”.
window.ToolFlow.fieldKind = (field) => field.name.slice(field.name.lastIndexOf("-") + 1);

window.ToolFlow.fieldTools = (field) => {
  const present = field.parentElement.querySelector(":scope > .field-tools");
  if (present) return present;
  const bar = document.createElement("div");
  bar.className = "field-tools";
  field.insertAdjacentElement("afterend", bar);
  return bar;
};
