// What live updates must not change: parts that the reader opened, closed or scrolled stay so, also when their content
// is replaced. Focus is kept by htmx, on elements that have an id.
"use strict";

const places = new Map();

document.addEventListener("htmx:oobBeforeSwap", (event) => {
  const { target, fragment } = event.detail;
  for (const part of target.querySelectorAll("[data-keep-scroll]")) {
    places.set(part.id, { left: part.scrollLeft, top: part.scrollTop });
  }
  for (const next of fragment.querySelectorAll("details[id]")) {
    const now = document.getElementById(next.id);
    if (now && (now === target || target.contains(now))) next.open = now.open;
  }
});

document.addEventListener("htmx:oobAfterSwap", () => {
  for (const [id, place] of places) document.getElementById(id)?.scrollTo(place);
  places.clear();
});

// A link to a line, an issue or an attempt opens what it is folded away in.
function revealTarget() {
  const target = document.getElementById(location.hash.slice(1));
  if (!target) return;
  for (let part = target.closest("details"); part; part = part.parentElement.closest("details")) part.open = true;
  target.scrollIntoView({ block: "nearest" });
}

window.addEventListener("hashchange", revealTarget);
// A second click on the same link changes no address.
document.addEventListener("click", (event) => {
  const link = event.target.closest('a[href^="#"]');
  if (link && link.hash === location.hash) revealTarget();
});
revealTarget();
