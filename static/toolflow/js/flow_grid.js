// The grid of a flow's last runs: pointing at a run or reaching it with the arrow keys describes it below the grid.
// Each run is a link, so that Enter opens it; the grid takes one stop of the Tab key.
"use strict";

(() => {
  const list = (grid) => [...grid.querySelectorAll("[data-run]")];

  function choose(run) {
    const grid = run.closest("[data-grid]");
    for (const other of list(grid)) {
      other.setAttribute("tabindex", other === run ? "0" : "-1");
      other.toggleAttribute("data-chosen", other === run);
    }
    for (const text of grid.querySelectorAll("[id^='grid-run-']")) {
      text.hidden = text.id !== `grid-run-${run.dataset.run}`;
      const link = text.querySelector("a");
      if (text.hidden) link.tabIndex = -1;
      else link.removeAttribute("tabindex");
    }
  }

  for (const kind of ["pointerover", "focusin"]) {
    document.addEventListener(kind, (event) => {
      const run = event.target.closest?.("[data-run]");
      if (run) choose(run);
    });
  }

  document.addEventListener("keydown", (event) => {
    const run = event.target.closest?.("[data-run]");
    const direction = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!run || !direction || event.ctrlKey || event.altKey || event.metaKey) return;
    const runs = list(run.closest("[data-grid]"));
    runs[runs.indexOf(run) + direction]?.focus();
    event.preventDefault();
  });

  for (const grid of document.querySelectorAll("[data-grid]")) {
    const box = grid.querySelector(".grid-box");
    // The newest runs are on the right; the runs themselves take the focus.
    box.scrollLeft = box.scrollWidth;
    box.removeAttribute("tabindex");
    grid.querySelector(".grid-keys").hidden = false;
    choose(list(grid).at(-1));
  }
})();
