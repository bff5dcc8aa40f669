// The severity filter of the run page without a reload: the state stands in data-hide of .run, which live updates
// leave alone, and in the URL. Without this script the same buttons send a form.
"use strict";

function hideOnly(run, hidden) {
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
}

function readHidden(run) {
  return new Set(run.dataset.hide.split(" ").filter(Boolean));
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-hides]");
  if (!button) return;
  event.preventDefault();
  const run = button.closest(".run");
  const hidden = readHidden(run);
  if (!hidden.delete(button.dataset.hides)) hidden.add(button.dataset.hides);
  hideOnly(run, hidden);
});

// Whoever follows a link to an issue or an attempt wants to see it, also if its attempt must be loaded first.
let isAwaited = false;

function showTarget() {
  const target = document.getElementById(location.hash.slice(1));
  isAwaited = !target && Boolean(location.hash);
  const run = target?.closest(".run");
  if (!run) return;
  const hidden = readHidden(run);
  const before = hidden.size;
  hidden.delete(target.closest(".issue")?.dataset.severity);
  if (target.closest(".attempt[data-clean]")) hidden.delete("clean");
  if (hidden.size === before) return;
  hideOnly(run, hidden);
  target.scrollIntoView({ block: "nearest" });
}

window.addEventListener("hashchange", showTarget);
document.addEventListener("htmx:afterSettle", () => isAwaited && showTarget());
// A second click on the same link changes no address.
document.addEventListener("click", (event) => {
  const link = event.target.closest('a[href^="#"]');
  if (link && link.hash === location.hash) showTarget();
});
showTarget();
