"use strict";

// The flow editor's page works without this, but for adding, deleting and dragging, which nested_admin does.
// All listeners are delegated: forms come and go.

(function () {
  const editor = ".flow-editor";

  // A new form is a copy, and its fields still refer to the help of the original.
  function linkDescriptions() {
    for (const field of document.querySelectorAll(`${editor} [aria-describedby][id]`)) {
      const ids = [`${field.id}_helptext`, `${field.id}_error`].filter((id) => document.getElementById(id));
      field.setAttribute("aria-describedby", ids.join(" "));
    }
  }

  // The name of a new step suggests the name of its tool, until somebody writes another one.
  function suggestToolName(card, name) {
    const field = card.querySelector("[name$=-tool_name]");
    if (card.dataset.isInitial === "true" || field.value !== (field.dataset.suggested || "")) return;
    const plain = name.normalize("NFD").replace(/[\u0300-\u036f]/g, "").toLowerCase();
    field.value = plain.replace(/[^a-z0-9]+/g, "_").replace(/^_+|_+$/g, "").slice(0, 64);
    field.dataset.suggested = field.value;
  }

  function showTitle(card) {
    const [name, tool] = ["name", "tool_name"].map((part) => card.querySelector(`[name=${card.id}-${part}]`).value);
    card.querySelector(".step-title").textContent = name || "New step";
    card.querySelector(".step-tool").textContent = tool;
  }

  document.addEventListener("input", (event) => {
    const card = event.target.closest(`${editor} .step`);
    if (!card) return;
    if (event.target.name === `${card.id}-name`) suggestToolName(card, event.target.value);
    showTitle(card);
  });

  document.addEventListener("formset:added", (event) => {
    linkDescriptions();
    const first = event.target.querySelector("input:not([type=hidden])");
    if (first) first.focus();
  });

  document.addEventListener("formset:removed", linkDescriptions);
})();
