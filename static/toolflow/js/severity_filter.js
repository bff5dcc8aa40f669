// The severity filter of the run page without a reload: the state stands in data-hide of .run, which live updates
// leave alone, and in the URL. Without this script the same buttons send a form.
"use strict";

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-hides]");
  if (!button) return;
  event.preventDefault();
  const run = button.closest(".run");
  const hidden = new Set(run.dataset.hide.split(" ").filter(Boolean));
  if (!hidden.delete(button.dataset.hides)) hidden.add(button.dataset.hides);
  run.dataset.hide = [...hidden].join(" ");

  const url = new URL(location.href);
  if (hidden.size) url.searchParams.set("hide", [...hidden].join(","));
  else url.searchParams.delete("hide");
  history.replaceState(history.state, "", url);

  for (const other of run.querySelectorAll("button[data-hides]")) {
    const name = other.dataset.hides;
    // For severities pressed means shown, for clean attempts it means hidden: as their words say.
    other.setAttribute("aria-pressed", String(hidden.has(name) === (name === "clean")));
    const after = new Set(hidden);
    if (!after.delete(name)) after.add(name);
    other.value = [...after].join(",");
  }
});
