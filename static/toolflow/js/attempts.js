// Attempts of a run: what stays in the database until it is opened is loaded then, chips open their attempts, and an
// output can be shown against the one before it. The URL says which outputs are; without this script a form does it.
"use strict";

(() => {
  const NEAR = "600px";
  const loading = new WeakSet();

  const readCompared = () => new Set((new URL(location.href).searchParams.get("diff") || "").split(",").filter(Boolean));

  function findContent(attempt) {
    return attempt.querySelector(":scope > .attempt-content[data-load]");
  }

  // Content that comes with the page has no address; content that could not be loaded keeps it, and its link.
  async function load(attempt) {
    const content = findContent(attempt);
    if (!content || loading.has(content)) return;
    loading.add(content);
    const query = readCompared().has(attempt.id) ? `?diff=${attempt.id}` : "";
    await htmx.ajax("GET", content.dataset.load + query, { source: content, target: content, swap: "innerHTML" });
    loading.delete(content);
    if (!content.querySelector(".attempt-unloaded")) content.removeAttribute("data-load");
  }

  // What is open from the start, and too long to come with the page, is loaded shortly before the reader gets there.
  const nearby = new IntersectionObserver(
    (entries) => {
      for (const { isIntersecting, target } of entries) if (isIntersecting) load(target);
    },
    { rootMargin: `${NEAR} 0px` },
  );

  function showOpen(attempt) {
    const chip = document.getElementById(`${attempt.id}-chip`);
    chip?.setAttribute("aria-expanded", String(attempt.open));
  }

  // Events of a part that opens or closes don't bubble.
  document.addEventListener(
    "toggle",
    (event) => {
      const attempt = event.target;
      if (!attempt.matches("details.attempt")) return;
      showOpen(attempt);
      if (attempt.open) load(attempt);
    },
    true,
  );

  function showCompared(id, isCompared) {
    const button = document.getElementById(`${id}-compare`);
    if (!button) return;
    const address = new URL(button.dataset.address, location.href);
    if (isCompared) address.searchParams.set("diff", id);
    const pane = `#${id}-output`;
    htmx.ajax("GET", address.pathname + address.search, { source: pane, target: pane, select: pane, swap: "outerHTML" });
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-compares]");
    if (!button) return;
    event.preventDefault();
    const id = button.dataset.compares;
    const compared = readCompared();
    const isCompared = button.getAttribute("aria-pressed") !== "true";
    if (isCompared) compared.add(id);
    else compared.delete(id);
    const url = new URL(location.href);
    if (compared.size) url.searchParams.set("diff", [...compared].join(","));
    else url.searchParams.delete("diff");
    history.replaceState(history.state, "", url);
    showCompared(id, isCompared);
  });

  // A chip opens its attempt and moves the page no more than it must.
  document.addEventListener("click", async (event) => {
    const chip = event.target.closest("a.strip-chip");
    if (!chip || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const attempt = document.getElementById(chip.hash.slice(1));
    if (!attempt) return;
    event.preventDefault();
    attempt.open = true;
    history.replaceState(history.state, "", chip.hash);
    attempt.querySelector("summary").focus({ preventScroll: true });
    await load(attempt);
    attempt.scrollIntoView({ block: "nearest" });
  });

  // Also after an update: it brings attempts, and draws others anew as the server knows them.
  function catchUp() {
    const compared = readCompared();
    for (const attempt of document.querySelectorAll("details.attempt")) {
      showOpen(attempt);
      if (attempt.open && findContent(attempt)) nearby.observe(attempt);
    }
    for (const id of compared) {
      const pane = document.getElementById(`${id}-output`);
      if (pane && !("compared" in pane.dataset)) showCompared(id, true);
    }
  }

  document.addEventListener("htmx:oobAfterSwap", catchUp);
  catchUp();
  // A strip that is too long for its box begins with its end: the latest attempt.
  for (const strip of document.querySelectorAll(".strip")) strip.scrollTop = strip.scrollHeight;
})();
