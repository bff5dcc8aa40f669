"use strict";

// “Include results of steps” names steps by number. When steps move, come or go, the numbers follow them: they keep
// meaning the same steps. The number of a deleted step is dropped, and comes back with it.

window.ToolFlow.renumberSteps = (() => {
  const { cards } = window.ToolFlow;
  const MOST_TOLD = 3;
  let order = [];

  // What was written into a field, and which steps it means; deleted ones too.
  const written = new WeakMap();

  const readNumbers = (text) => {
    const parts = text.trim().replace(/^\[|\]$/g, "").split(/[\s,]+/).filter(Boolean);
    return parts.every((part) => /^-?\d{1,6}$/.test(part)) ? parts.map(Number) : null;
  };

  // The steps of the numbers, as they were counted before. Numbers of none, 0 for the input among them, stay.
  const findSteps = (field) => {
    const known = written.get(field);
    if (known && known.text === field.value) return known.steps;
    const numbers = readNumbers(field.value);
    return numbers && numbers.map((number) => order[number - 1] || number);
  };

  const rewrite = (field, steps, places) => {
    const numbers = steps.filter((step) => typeof step === "number" || places.has(step));
    const list = numbers.map((step) => (typeof step === "number" ? step : places.get(step))).join(", ");
    if (readNumbers(field.value).join(", ") === list) return "";
    const before = field.value;
    field.value = before.trim().startsWith("[") ? `[${list}]` : list;
    written.set(field, { text: field.value, steps });
    field.dispatchEvent(new Event("input", { bubbles: true }));
    return `${before} → ${field.value || "none"}`;
  };

  const tell = (changes) => {
    if (changes.length === 0) return "";
    if (changes.length > MOST_TOLD) return `The included results of ${changes.length} steps were renumbered.`;
    const list = changes.map(({ card, change }) => `${cards.describe(card).replace("Step", "step")}: ${change}`);
    return `Included results renumbered in ${list.join("; ")}.`;
  };

  document.addEventListener("DOMContentLoaded", () => {
    if (cards.stepsGroup()) order = cards.listKept(cards.stepsGroup());
  });

  return () => {
    const all = cards.list(cards.stepsGroup());
    const fields = all.map((card) => ({ card, field: cards.fieldOf(card, "include_results") }));
    const meant = fields.map(({ card, field }) => ({ card, field, steps: findSteps(field) }));
    order = cards.listKept(cards.stepsGroup());
    const places = new Map(order.map((card, place) => [card, place + 1]));
    const changes = meant
      .filter(({ steps }) => steps && steps.length)
      .map(({ card, field, steps }) => ({ card, change: rewrite(field, steps, places) }))
      .filter(({ card, change }) => change && places.has(card));
    return tell(changes);
  };
})();
