"use strict";

// Deletes cards, which can be taken back until the flow is saved: stored ones and new ones alike are only marked.

(() => {
  const { cards } = window.ToolFlow;

  const writeLine = (card) => {
    const line = document.createElement("p");
    line.className = "deleted-line";
    const words = document.createElement("span");
    const fate = card.dataset.isInitial === "true" ? "will be deleted when you save" : "is new and will not be saved";
    words.textContent = `${cards.describe(card)} ${fate} · `;
    const button = document.createElement("button");
    button.type = "button";
    button.dataset.tool = "keep";
    button.textContent = "Keep it";
    line.append(words, button);
    card.prepend(line);
    return button;
  };

  const mark = (card, isDeleted) => {
    cards.fieldOf(card, "DELETE").checked = isDeleted;
    card.classList.toggle("grp-predelete", isDeleted);
    const group = cards.groupOf(card);
    if (isDeleted) {
      writeLine(card).focus();
      card.setAttribute("aria-label", `${cards.describe(card)}, deleted`);
      cards.settle(group, `${cards.describe(card)} is deleted. You can keep it until you save.`);
    } else {
      card.querySelector(":scope > .deleted-line").remove();
      card.querySelector(":scope > .card-tools > [data-tool=delete]").focus();
      cards.settle(group, `${cards.describe(card)} is kept.`);
    }
    const detail = { formsetName: group.id.slice(0, -6) };
    card.dispatchEvent(new CustomEvent(isDeleted ? "formset:removed" : "formset:added", { bubbles: true, detail }));
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-tool=delete], [data-tool=keep]");
    if (button) mark(button.closest(".djn-inline-form"), button.dataset.tool === "delete");
  });

  // What was deleted before a save that failed is deleted still.
  document.addEventListener("DOMContentLoaded", () => {
    for (const card of document.querySelectorAll(".steps .djn-item.grp-predelete")) writeLine(card);
  });
})();
