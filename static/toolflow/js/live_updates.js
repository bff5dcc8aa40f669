// The page of a run keeps itself up to date and leaves the reader alone.
"use strict";

// Asking for what is new: at once while things change, more and more seldom while nothing does. An update then comes
// late by a fifth of the time that it was waited for, at most. A hidden tab is not updated.
(() => {
  const FASTEST = 1_000;
  const SLOWEST = 10_000;
  const SLOWEST_WHILE_LOST = 30_000;
  const SHARE = 0.25;

  let lastChange = performance.now();
  let lastAsked = performance.now();
  let failures = 0;
  let asking = null;

  const notice = document.createElement("div");
  notice.className = "message message-error connection";
  notice.setAttribute("role", "status");
  notice.setAttribute("aria-live", "polite");
  document.body.append(notice);

  function choosePause() {
    if (failures) return Math.min(FASTEST * 2 ** failures, SLOWEST_WHILE_LOST);
    return Math.min(Math.max((lastAsked - lastChange) * SHARE, FASTEST), SLOWEST);
  }

  function ask() {
    const poller = document.querySelector("#live[hx-get]");
    if (poller && poller !== asking && !document.hidden) poller.dispatchEvent(new CustomEvent("ask"));
  }

  // Right after an update nothing hears the event yet.
  document.addEventListener("htmx:beforeRequest", (event) => {
    if (event.detail.elt.id !== "live") return;
    asking = event.detail.elt;
    lastAsked = performance.now();
  });

  document.addEventListener("htmx:afterRequest", (event) => {
    const { requestConfig, xhr } = event.detail;
    // For an element that is no longer there this is called twice.
    if (!asking || requestConfig.elt !== asking) return;
    // The run was deleted, or the reader must sign in: another page is loading, and to ask again would restart that.
    if (xhr.getResponseHeader("HX-Redirect")) return;
    if (xhr.status === 403 || xhr.status === 404) {
      location.reload();
      return;
    }
    asking = null;
    if (xhr.status >= 200 && xhr.status < 300) {
      failures = 0;
      if (xhr.status !== 204) lastChange = performance.now();
    } else {
      failures += 1;
    }
    const words = failures ? "Connection lost. Trying again…" : "";
    if (notice.textContent !== words) notice.textContent = words;
  });

  setInterval(() => {
    if (performance.now() - lastAsked >= choosePause()) ask();
  }, 250);
  document.addEventListener("visibilitychange", ask);
  window.addEventListener("online", ask);
})();

// What lasts is counted on, from where the server has counted to.
(() => {
  const begins = new WeakMap();

  function write(seconds) {
    const two = (number) => String(number).padStart(2, "0");
    const minutes = Math.floor(seconds / 60);
    if (seconds < 60) return `${seconds} s`;
    if (minutes < 60) return `${minutes} min ${two(seconds % 60)} s`;
    if (minutes < 1_440) return `${Math.floor(minutes / 60)} h ${two(minutes % 60)} min`;
    return `${Math.floor(minutes / 1_440)} d ${two(Math.floor(minutes / 60) % 24)} h`;
  }

  function count() {
    const now = performance.now();
    for (const part of document.querySelectorAll("[data-seconds]")) {
      if (!begins.has(part)) begins.set(part, now - Number(part.dataset.seconds) * 1_000);
      const words = write(Math.floor((now - begins.get(part)) / 1_000));
      if (part.textContent !== words) part.textContent = words;
    }
  }

  setInterval(count, 250);
  document.addEventListener("htmx:afterSettle", count);
  count();
})();

// What live updates must not change: parts that the reader opened or closed stay so, and the first row of the outline in
// sight stays where it is, also when their content is replaced. Focus is kept by htmx, on elements that have an id.
(() => {
  let row = null;

  // On a phone the outline scrolls by itself, else with what is below it.
  function findScroller(outline) {
    return getComputedStyle(outline).overflowY === "auto" ? outline : outline.parentElement;
  }

  document.addEventListener("htmx:oobBeforeSwap", (event) => {
    const { target, fragment } = event.detail;
    if (target.id === "outline") {
      const scroller = findScroller(target);
      const top = scroller.getBoundingClientRect().top;
      const seen = [...target.querySelectorAll("a[id]")].find((one) => one.getBoundingClientRect().top >= top);
      row = scroller.scrollTop && seen ? { id: seen.id, top: seen.getBoundingClientRect().top } : null;
    }
    for (const next of fragment.querySelectorAll("details[id]")) {
      const now = document.getElementById(next.id);
      if (now && (now === target || target.contains(now))) next.open = now.open;
    }
  });

  document.addEventListener("htmx:oobAfterSwap", (event) => {
    const seen = row && event.detail.target.id === "outline" && document.getElementById(row.id);
    if (!seen) return;
    findScroller(document.getElementById("outline")).scrollTop += seen.getBoundingClientRect().top - row.top;
    row = null;
  });
})();
