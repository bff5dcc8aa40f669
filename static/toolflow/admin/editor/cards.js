"use strict";

// The cards of the flow editor: steps, and the audits in them. Here is what the editor's other scripts ask about cards,
// and what everybody does who moved, added or deleted one. All listeners are delegated: cards come and go.

window.ToolFlow = window.ToolFlow || {};

window.ToolFlow.cards = (() => {
  const NO_CARD = ".djn-empty-form, .ui-sortable-helper, .ui-sortable-placeholder";
  const isStep = (card) => card.classList.contains("step");
  const isDeleted = (card) => card.classList.contains("grp-predelete");
  const groupOf = (card) => card.parentElement.closest(".djn-group");
  const auditsOf = (step) => step.querySelector(".audits");
  const fieldOf = (card, name) => document.getElementById(`id_${card.id}-${name}`);
  const stepsGroup = () => document.getElementById("steps-group");
  const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

  const list = (group) =>
    [...group.querySelectorAll(":scope > .djn-items > .djn-inline-form")].filter((card) => !card.matches(NO_CARD));
  // Those that will be there after the next save: only they have a number.
  const listKept = (group) => list(group).filter((card) => !isDeleted(card));

  const nameOf = (card) => {
    const field = fieldOf(card, "name");
    return field ? field.value.trim() : "";
  };
  const describe = (card) => {
    const name = nameOf(card);
    return `${isStep(card) ? "Step" : "Audit"}${name ? ` “${name}”` : ""}`;
  };

  const READABLE = 8000; // milliseconds that a line stays on the page
  let shown = 0;

  // One line at the end of the steps, which is read out as well.
  const announce = (text) => {
    const line = document.querySelector("[data-editor-status]");
    line.textContent = text;
    clearTimeout(shown);
    shown = setTimeout(() => { line.textContent = ""; }, READABLE);
  };

  // Where a form stands is what the server goes by, and for an audit the step that it is in.
  const setPositions = (group) => {
    const step = group.closest(".step");
    const parent = step && fieldOf(step, "id");
    list(group).forEach((card, place) => {
      fieldOf(card, "position").value = place;
      if (parent) fieldOf(card, "step").value = parent.value;
    });
  };

  const label = (group) => {
    listKept(group).forEach((card, place) => {
      const name = nameOf(card);
      card.setAttribute("aria-label", `${isStep(card) ? "Step" : "Audit"} ${place + 1}${name ? ` “${name}”` : ""}`);
    });
  };

  const countFilled = (fold) => {
    // What a choice says by itself is known to the server alone.
    const mark = fold.querySelector(":scope > summary > .filled");
    if (!mark || fold.querySelector("select")) return;
    const fields = [...fold.querySelectorAll("input[name], textarea[name]")];
    const filled = fields.filter((field) => (field.type === "checkbox" ? field.checked : field.value.trim())).length;
    mark.textContent = `${filled} set`;
    mark.hidden = filled === 0;
  };

  // What the head of a card says follows from its fields.
  const showHead = (step) => {
    const compute = fieldOf(step, "compute");
    if (!compute) return;
    step.querySelector(".step-title").textContent = nameOf(step) || "New step";
    step.querySelector(".step-tool").textContent = fieldOf(step, "tool_name").value;
    step.classList.toggle("local", compute.value.trim() !== "");
    const audits = listKept(auditsOf(step)).length;
    step.querySelector(".step-audits").textContent = audits ? plural(audits, "audit") : "";
  };

  const refresh = (group) => {
    label(group);
    const step = group.closest(".step");
    if (step) showHead(step);
  };

  // To be called after each change to which cards there are and in what order.
  const settle = (group, sentence) => {
    setPositions(group);
    refresh(group);
    const renumbered = group === stepsGroup() ? window.ToolFlow.renumberSteps() : "";
    announce([sentence, renumbered].filter(Boolean).join(" "));
  };

  const giveTools = (part, kind) => {
    const tools = document.querySelector(`.djn-empty-form.${kind} > .card-tools`);
    if (!tools) return;
    for (const card of part.querySelectorAll(`.djn-inline-form.${kind}`)) {
      if (!card.querySelector(":scope > .card-tools")) card.prepend(tools.cloneNode(true));
    }
  };

  document.addEventListener("DOMContentLoaded", () => {
    if (!stepsGroup()) return;
    giveTools(stepsGroup(), "step");
    for (const fold of stepsGroup().querySelectorAll(".step-fold[open]")) giveTools(fold, "audit");
  });

  // Hundreds of audits in closed cards do without.
  document.addEventListener(
    "toggle",
    (event) => {
      if (event.target.matches(".step-fold")) giveTools(event.target, "audit");
    },
    { capture: true },
  );

  document.addEventListener("input", (event) => {
    const fold = event.target.closest(".flow-editor .tf-fold");
    if (fold) countFilled(fold);
    const card = event.target.closest(".flow-editor .djn-inline-form");
    if (!card || !event.target.name) return;
    announce("");
    const step = card.closest(".step");
    if (event.target.name === `${step.id}-name`) suggestToolName(step, event.target.value);
    if (event.target.name === `${card.id}-name`) label(groupOf(card));
    showHead(step);
  });

  // The name of a new step suggests the name of its tool, until somebody writes another one.
  function suggestToolName(step, name) {
    const field = fieldOf(step, "tool_name");
    if (step.dataset.isInitial === "true" || field.value !== (field.dataset.suggested || "")) return;
    const plain = name.normalize("NFD").replace(/[\u0300-\u036f]/g, "").toLowerCase();
    field.value = plain.replace(/[^a-z0-9]+/g, "_").replace(/^_+|_+$/g, "").slice(0, 64);
    field.dataset.suggested = field.value;
  }

  return {
    announce, auditsOf, countFilled, describe, fieldOf, groupOf, isDeleted, isStep, list, listKept, nameOf, plural,
    refresh, setPositions, settle, showHead, stepsGroup,
  };
})();
