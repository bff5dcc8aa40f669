// Fields that take JSON say while one types whether it can be read, and lay it out on request. The server checks
// again and names line and column for every browser.
"use strict";

function describeError(text, message) {
  const lines = /line (\d+) column (\d+)/.exec(message);
  if (lines) return `Line ${lines[1]}, column ${lines[2]}: this is not JSON.`;
  const at = /position (\d+)/.exec(message);
  // Not every browser names the place of every mistake.
  if (!at) return "This is not JSON yet.";
  const before = text.slice(0, Number(at[1])).split("\n");
  return `Line ${before.length}, column ${before[before.length - 1].length + 1}: this is not JSON.`;
}

// Only white space changes: reading and writing the value would round long numbers.
function layOut(text) {
  let depth = 0;
  let result = "";
  let last = "";
  const startLine = () => "\n" + "  ".repeat(depth);
  for (const token of text.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g)) {
    const closes = token === "}" || token === "]";
    if (closes) depth -= 1;
    if (closes ? !"{[".includes(last) : ["{", "[", ","].includes(last)) result += startLine();
    result += token === ":" ? ": " : token;
    if (token === "{" || token === "[") depth += 1;
    last = token;
  }
  return result;
}

function checkJson(field) {
  const status = document.querySelector(`[data-json-status="${field.id}"]`);
  const format = document.querySelector(`[data-json-format="${field.id}"]`);
  let sentence = "";
  let isRight = false;
  if (field.value.trim()) {
    try {
      const value = JSON.parse(field.value);
      isRight = field.dataset.json === "any" || (typeof value === "object" && value !== null && !Array.isArray(value));
      sentence = isRight ? "✓ Valid JSON" : "A JSON object { … } is expected.";
    } catch (error) {
      sentence = describeError(field.value, error.message);
    }
  }
  status.textContent = sentence;
  status.className = isRight ? "is-right" : "is-wrong";
  format.hidden = !isRight;
}

document.addEventListener("input", (event) => {
  if (event.target.matches("textarea[data-json]")) checkJson(event.target);
});

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-json-format]");
  if (!button) return;
  const field = document.getElementById(button.dataset.jsonFormat);
  field.value = layOut(field.value);
  field.focus();
});

// Where the server has named a mistake already, its sentence is the better one.
for (const field of document.querySelectorAll("textarea[data-json]:not([aria-invalid])")) checkJson(field);
