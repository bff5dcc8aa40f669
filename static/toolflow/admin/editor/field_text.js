"use strict";

// Writes in a field, and goes to a place in it.

window.ToolFlow = window.ToolFlow || {};

// As if it had been typed: the browser can take it back, and everybody hears of it.
window.ToolFlow.replaceText = (field, start, end, text) => {
  field.focus({ preventScroll: true });
  field.setSelectionRange(start, end);
  if (document.execCommand("insertText", false, text)) return;
  field.setRangeText(text, start, end, "end");
  field.dispatchEvent(new Event("input", { bubbles: true }));
};

// Line and column count from 1, and columns count characters, as people do.
window.ToolFlow.goToPlace = (field, line, column) => {
  const lines = field.value.split("\n");
  const before = lines.slice(0, line - 1).reduce((sum, text) => sum + text.length + 1, 0);
  const offset = before + [...(lines[line - 1] || "")].slice(0, column - 1).join("").length;
  field.focus();
  field.setSelectionRange(offset, offset);
  const height = parseFloat(getComputedStyle(field).lineHeight);
  field.scrollTop = Math.max(0, (line - 1) * height - field.clientHeight / 2);
};

// What an expression is made of, put where the caret is. A beginning of it that stands there already is completed.
window.ToolFlow.insertPath = (field, path) => {
  const end = field.selectionEnd;
  let start = field.selectionStart;
  const typed = /[A-Za-z_][\w.[\]]*$/.exec(field.value.slice(0, start));
  if (typed && path.startsWith(typed[0])) start -= typed[0].length;
  window.ToolFlow.replaceText(field, start, end, path);
};
