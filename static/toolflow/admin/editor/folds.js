"use strict";

// Folds the cards of steps, all at once too. Those with problems stay open, and after saving those that were.

(() => {
  const STORE = "toolflow-open-steps";
  const folds = () => [...document.querySelectorAll(".steps .djn-item > .step-fold")];

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-fold]");
    if (!button) return;
    for (const fold of folds()) {
      fold.open = button.dataset.fold === "open" || fold.querySelector(".has-error, .error-count") !== null;
    }
  });

  // A link to a field, such as those of the list of problems, opens whatever it is folded into.
  const reveal = () => {
    const target = document.querySelector(":target");
    if (!target) return;
    for (let fold = target.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    target.scrollIntoView({ block: "center" });
    target.focus({ preventScroll: true });
  };

  window.addEventListener("hashchange", reveal);
  document.addEventListener("click", (event) => {
    const link = event.target.closest(".flow-editor .problems a[href^='#']");
    // The address changes with the first click only.
    if (link && link.hash === window.location.hash) reveal();
  });

  document.addEventListener("submit", (event) => {
    if (event.defaultPrevented || event.target.id !== "flow_form") return;
    const { cards } = window.ToolFlow;
    const open = cards.listKept(cards.stepsGroup()).map((card) => card.querySelector(".step-fold").open);
    window.sessionStorage.setItem(STORE, JSON.stringify(open));
  });

  document.addEventListener("DOMContentLoaded", () => {
    const stored = window.sessionStorage.getItem(STORE);
    window.sessionStorage.removeItem(STORE);
    const open = stored ? JSON.parse(stored) : [];
    const all = folds();
    if (open.length !== all.length || document.querySelector("#flow_form .problems")) return;
    all.forEach((fold, place) => {
      fold.open = open[place];
    });
  });
})();
