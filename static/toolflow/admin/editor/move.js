"use strict";

// Moves cards: by their buttons, and what is to be done when one was dragged.

(() => {
  const { cards } = window.ToolFlow;

  const tellMoved = (card) => {
    const group = cards.groupOf(card);
    const kept = cards.listKept(group);
    const place = `${cards.describe(card)} moved to place ${kept.indexOf(card) + 1} of ${kept.length}.`;
    cards.settle(group, place);
    card.dispatchEvent(new CustomEvent("formset:moved", { bubbles: true, detail: { formsetName: group.id.slice(0, -6) } }));
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-tool=up], [data-tool=down]");
    if (!button) return;
    const card = button.closest(".djn-inline-form");
    const isUp = button.dataset.tool === "up";
    const kept = cards.listKept(cards.groupOf(card));
    const neighbour = kept[kept.indexOf(card) + (isUp ? -1 : 1)];
    if (!neighbour) {
      cards.announce(`${cards.describe(card)} is the ${isUp ? "first" : "last"} already.`);
      return;
    }
    if (isUp) neighbour.before(card);
    else neighbour.after(card);
    tellMoved(card);
    // What is taken out and put in again has lost the focus.
    button.focus({ preventScroll: true });
    button.scrollIntoView({ block: "nearest" });
  });

  let origin = null;

  const whereIs = (card) => {
    const group = cards.groupOf(card);
    return { group, place: cards.list(group).indexOf(card) };
  };

  document.addEventListener("DOMContentLoaded", () => {
    const { jQuery } = window.django;
    jQuery(document).on("nestedsortablestart", (event, ui) => {
      origin = whereIs(ui.item[0]);
    });
    jQuery(document).on("nestedsortablestop", (event, ui) => {
      const card = ui.item[0];
      const now = whereIs(card);
      if (!origin || (origin.group === now.group && origin.place === now.place)) return;
      if (origin.group !== now.group) {
        cards.setPositions(origin.group);
        cards.refresh(origin.group);
        nameErrors(card);
      }
      origin = null;
      tellMoved(card);
    });
  });

  // In another step an audit's fields have other names, and so have the lists of what is wrong with them.
  function nameErrors(card) {
    for (const list of card.querySelectorAll(".errorlist[id]")) {
      const field = document.getElementById(list.id.replace(/_error$/, ""));
      const help = field && (field.getAttribute("aria-describedby") || "").split(" ").filter((id) => !id.endsWith("_error"));
      if (field) field.setAttribute("aria-describedby", [...help, list.id].join(" ").trim());
    }
  }
})();
