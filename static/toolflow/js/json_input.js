// Fields that take JSON say while one types whether it can be read, and lay it out on request. The server checks
// again and names line and column for every browser.
"use strict";

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
      sentence = window.ToolFlow.describeJsonError(field.value, error.message);
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
  field.value = window.ToolFlow.layOutJson(field.value);
  field.focus();
});

// Where the server has named a mistake already, its sentence is the better one.
for (const field of document.querySelectorAll("textarea[data-json]:not([aria-invalid])")) checkJson(field);
