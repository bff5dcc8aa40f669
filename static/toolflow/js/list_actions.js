// The bar above the list of runs: how many are chosen, and menus that close. Without it the buttons do the same.
"use strict";

const CHOSEN = 'input[type="checkbox"][name="run"][form="bulk"]';

function showChosen() {
  const bar = document.getElementById("bulk");
  if (!bar) return;
  const boxes = [...document.querySelectorAll(CHOSEN)];
  const count = boxes.filter((box) => box.checked).length;
  const all = document.getElementById("choose-all");
  all.closest("label").hidden = boxes.length === 0;
  all.checked = count > 0 && count === boxes.length;
  all.indeterminate = count > 0 && count < boxes.length;
  const words = count === 0 ? "None chosen" : count === 1 ? "1 run chosen" : `${count} runs chosen`;
  const status = document.getElementById("chosen");
  if (status.textContent !== words) status.textContent = words;
  for (const button of bar.querySelectorAll("[data-needs-choice]")) button.disabled = count === 0;
}

document.addEventListener("change", (event) => {
  if (event.target.id === "choose-all") {
    for (const box of document.querySelectorAll(CHOSEN)) box.checked = event.target.checked;
  }
  if (event.target.id === "choose-all" || event.target.matches(CHOSEN)) showChosen();
});

// A browser that comes back to the page ticks what was ticked.
window.addEventListener("pageshow", showChosen);
document.addEventListener("htmx:afterSettle", showChosen);
showChosen();

function closeMenus(except) {
  for (const menu of document.querySelectorAll("details.menu[open]")) if (menu !== except) menu.open = false;
}

document.addEventListener("click", (event) => closeMenus(event.target.closest("details.menu")));

document.addEventListener("keydown", (event) => {
  const menu = event.key === "Escape" && event.target.closest("details.menu[open]");
  if (!menu) return;
  menu.open = false;
  menu.querySelector("summary").focus();
});

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-export]");
  if (link) link.closest("details").open = false;
});
