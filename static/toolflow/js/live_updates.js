// What live updates must not change: parts that the reader opened or closed stay so, also when their content is
// replaced. Scrolling and focus are kept by htmx, which swaps only what changed.
"use strict";

document.addEventListener("htmx:oobBeforeSwap", (event) => {
  const { target, fragment } = event.detail;
  for (const next of fragment.querySelectorAll("details[id]")) {
    const now = document.getElementById(next.id);
    if (now && (now === target || target.contains(now))) next.open = now.open;
  }
});

// A link to a line, an issue or an attempt opens what it is folded away in.
function revealTarget() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  for (let part = target.closest("details"); part; part = part.parentElement.closest("details")) part.open = true;
  target.scrollIntoView({ block: "nearest" });
}

window.addEventListener("hashchange", revealTarget);
revealTarget();
