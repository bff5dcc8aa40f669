// The list of runs: addresses without empty filters, selected runs, and folds that close. Without it all works but
// the comparison of two runs.
"use strict";

document.addEventListener("submit", (event) => {
  if (!event.target.matches(".filter-form")) return;
  for (const field of event.target.elements) {
    if (field.name && !field.value) field.disabled = true;
  }
});

const SELECTED = 'input[type="checkbox"][name="run"][form="bulk"]';

function showSelected() {
  const bar = document.getElementById("bulk");
  if (!bar) return;
  const boxes = [...document.querySelectorAll(SELECTED)];
  const selected = boxes.filter((box) => box.checked);
  const all = document.getElementById("choose-all");
  all.closest("label").hidden = boxes.length === 0;
  all.checked = selected.length > 0 && selected.length === boxes.length;
  all.indeterminate = selected.length > 0 && !all.checked;
  const status = document.getElementById("chosen");
  const words = `${selected.length} selected`;
  if (status.textContent !== words) status.textContent = words;
  for (const button of bar.querySelectorAll("[data-needs-choice]")) button.disabled = selected.length === 0;
  const compare = document.getElementById("compare");
  compare.hidden = false;
  if (selected.length === 2) {
    const [a, b] = selected.map((box) => Number(box.value)).sort((one, other) => one - other);
    compare.search = new URLSearchParams({ a, b });
    compare.removeAttribute("aria-disabled");
  } else {
    compare.setAttribute("aria-disabled", "true");
  }
}

document.addEventListener("change", (event) => {
  if (event.target.id === "choose-all") {
    for (const box of document.querySelectorAll(SELECTED)) box.checked = event.target.checked;
  }
  if (event.target.id === "choose-all" || event.target.matches(SELECTED)) showSelected();
});

// A browser that comes back to the page finds fields and boxes as it kept them.
window.addEventListener("pageshow", () => {
  for (const field of document.querySelectorAll(".filter-form [disabled]")) field.disabled = false;
  showSelected();
});
document.addEventListener("htmx:afterSettle", showSelected);
showSelected();

const FOLDS = "details.menu[open], .more-filters[open], .save-view[open]";

document.addEventListener("click", (event) => {
  if (event.target.closest('#compare[aria-disabled="true"]')) event.preventDefault();
  for (const fold of document.querySelectorAll(FOLDS)) {
    if (!fold.contains(event.target) || event.target.closest("a[data-export]")) fold.open = false;
  }
});

document.addEventListener("keydown", (event) => {
  const fold = event.key === "Escape" && event.target.closest(FOLDS);
  if (!fold) return;
  fold.open = false;
  fold.querySelector("summary").focus();
});
