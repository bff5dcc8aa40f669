// The list of runs: addresses without empty filters, and Escape that closes what is folded out. Everything works
// without this script too.
"use strict";

document.addEventListener("submit", (event) => {
  if (!event.target.matches(".filter-form")) return;
  for (const field of event.target.elements) {
    if (field.name && !field.value) field.disabled = true;
  }
});

// Who comes back finds the form as the browser kept it.
window.addEventListener("pageshow", () => {
  for (const field of document.querySelectorAll(".filter-form [disabled]")) field.disabled = false;
});

document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  const open = event.target.closest(".more-filters[open], .save-view[open]");
  if (!open) return;
  open.open = false;
  open.querySelector("summary").focus();
});

document.addEventListener("click", (event) => {
  for (const open of document.querySelectorAll(".more-filters[open], .save-view[open]")) {
    if (!open.contains(event.target)) open.open = false;
  }
});
