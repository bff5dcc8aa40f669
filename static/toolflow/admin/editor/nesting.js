"use strict";

// On a large flow some things that nested_admin does take seconds: making everything sortable when the page opens,
// looking for buttons of its own in each form for each other one, and looking up each field by its name when the page is
// saved. The first waits until something is to be dragged, the second finds nothing here, and the third is done as cards
// are moved.

document.addEventListener("DOMContentLoaded", () => {
  const nesting = window.DJNesting && window.DJNesting.default;
  if (!nesting) return;
  const { cards } = window.ToolFlow;

  nesting.updatePositions = (prefix) => cards.setPositions(document.getElementById(`${prefix}-group`));

  nesting.DjangoFormset.prototype._initializeForm = function markForm(form) {
    window.django.jQuery(form).addClass(this.opts.formClass);
  };

  const createSortable = nesting.createSortable;
  let waiting = null;
  nesting.createSortable = (group) => {
    waiting = group;
  };
  document.addEventListener(
    "pointerdown",
    (event) => {
      if (!waiting || !event.target.closest(".drag-handler")) return;
      createSortable(waiting);
      waiting = null;
    },
    { capture: true },
  );
});
