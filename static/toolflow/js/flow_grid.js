// The grid of a flow's last runs: pointing at a run or reaching it with the arrow keys describes it below the grid.
// Each run is a link, so that Enter opens it; the grid takes one stop of the Tab key.
"use strict";

(() => {
  const grid = document.querySelector("[data-grid]");
  if (!grid) return;
  const runs = [...grid.querySelectorAll("[data-run]")];

  function choose(run) {
    for (const other of runs) {
      const isChosen = other === run;
      const text = document.getElementById(`grid-run-${other.dataset.run}`);
      other.tabIndex = isChosen ? 0 : -1;
      other.toggleAttribute("data-chosen", isChosen);
      text.hidden = !isChosen;
      text.querySelector("a").tabIndex = isChosen ? 0 : -1;
    }
  }

  for (const kind of ["pointerover", "focusin"]) {
    grid.addEventListener(kind, (event) => {
      const run = event.target.closest("[data-run]");
      if (run) choose(run);
    });
  }

  grid.addEventListener("keydown", (event) => {
    const position = runs.indexOf(event.target.closest("[data-run]"));
    const direction = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (position < 0 || !direction || event.ctrlKey || event.altKey || event.metaKey) return;
    runs[position + direction]?.focus();
    event.preventDefault();
  });

  const box = grid.querySelector(".grid-box");
  // The newest runs are on the right; the runs themselves take the focus.
  box.scrollLeft = box.scrollWidth;
  box.removeAttribute("tabindex");
  grid.querySelector(".grid-keys").hidden = false;
  choose(runs.at(-1));
})();
