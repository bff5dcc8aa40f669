// The search box: “/” or Ctrl K opens a dialog whose results follow what is typed. Without this script the link leads
// to a page that does the same.
"use strict";

(() => {
  const OFF = "toolflow.keys-off"; // set on the page of a run, where keys can be turned off
  const DELAY = 120;
  const dialog = document.getElementById("search-box");
  if (!dialog) return;
  const input = dialog.querySelector("input");
  const results = document.getElementById("search-results");
  let timer = 0;
  let asked = 0;
  let shown = null; // what the results are of

  const listHits = () => [...results.querySelectorAll('[role="option"]')];
  const findActive = () => results.querySelector('[aria-selected="true"]');

  function activate(hit) {
    for (const one of listHits()) one.setAttribute("aria-selected", String(one === hit));
    input.setAttribute("aria-activedescendant", hit ? hit.id : "");
    hit?.scrollIntoView({ block: "nearest" });
  }

  async function ask() {
    const number = (asked += 1);
    const text = input.value;
    const url = new URL(dialog.querySelector("form").action);
    url.search = new URLSearchParams({ q: text });
    let answer;
    try {
      answer = await fetch(url, { headers: { "HX-Request": "true", "HX-Current-URL": location.href } });
    } catch {
      return;
    }
    if (number !== asked) return;
    if (!answer.ok || answer.headers.has("HX-Redirect")) {
      location.href = answer.headers.get("HX-Redirect") || url;
      return;
    }
    results.innerHTML = await answer.text();
    shown = text;
    listHits().forEach((hit, position) => (hit.id = `search-hit-${position}`));
    input.setAttribute("aria-expanded", String(listHits().length > 0));
    activate(listHits()[0]);
  }

  function open() {
    if (dialog.open) return;
    dialog.showModal();
    input.select();
    ask();
  }

  const areKeysOff = () => {
    try {
      return localStorage.getItem(OFF) !== null;
    } catch {
      return false;
    }
  };

  document.addEventListener("click", (event) => {
    const link = event.target.closest("[data-search-open]");
    if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
      event.preventDefault();
      open();
    }
    // Only the ground around the dialog is the dialog itself.
    if (event.target === dialog) dialog.close();
  });

  document.addEventListener("keydown", (event) => {
    const isShortcut = (event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === "k";
    const isSlash = event.key === "/" && !event.ctrlKey && !event.metaKey && !event.altKey && !areKeysOff();
    const isTyping = event.target.closest?.("input, textarea, select, [contenteditable], dialog[open]");
    if (isShortcut || (isSlash && !isTyping)) {
      event.preventDefault();
      open();
    }
  });

  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(ask, DELAY);
  });

  input.addEventListener("keydown", (event) => {
    const hits = listHits();
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || !hits.length) return;
    event.preventDefault();
    activate(hits[(hits.indexOf(findActive()) + step + hits.length) % hits.length]);
  });

  // Enter before the results are there sends the form: it leads to a run or to the page of results.
  dialog.querySelector("form").addEventListener("submit", (event) => {
    const hit = findActive();
    if (!hit || shown !== input.value) return;
    event.preventDefault();
    location.href = hit.href;
  });
})();
