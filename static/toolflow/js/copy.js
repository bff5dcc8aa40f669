// Buttons that copy the text of an element: <button type="button" data-copies="ID" hidden>. They are
// shown where this script runs, also in what is loaded later.
"use strict";

(() => {
  const SHOWN_FOR = 2_000;

  const announcement = document.createElement("div");
  announcement.className = "visually-hidden";
  announcement.setAttribute("role", "status");
  announcement.setAttribute("aria-live", "polite");
  document.body.append(announcement);

  function show(part) {
    for (const button of part.querySelectorAll("[data-copies][hidden]")) button.hidden = false;
  }

  // Browsers give their clipboard only to pages that come through TLS or from this machine.
  function copyBySelection(text) {
    const field = document.createElement("textarea");
    field.value = text;
    field.className = "visually-hidden";
    const focused = document.activeElement;
    document.body.append(field);
    field.select();
    const isDone = document.execCommand("copy");
    field.remove();
    focused?.focus({ preventScroll: true });
    return isDone;
  }

  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      return copyBySelection(text);
    }
  }

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copies]");
    const source = button && document.getElementById(button.dataset.copies);
    if (!source) return;
    const words = (await copy(source.textContent)) ? "Copied" : "Not copied: the browser refuses";
    button.dataset.notice = words;
    // The same words twice are read out once.
    announcement.textContent = "";
    setTimeout(() => (announcement.textContent = words), 50);
    setTimeout(() => delete button.dataset.notice, SHOWN_FOR);
  });

  // Before the swap: what is hidden can't get the focus back.
  document.addEventListener("htmx:oobBeforeSwap", (event) => show(event.detail.fragment));
  document.addEventListener("htmx:afterSwap", () => show(document));
  document.addEventListener("toolflow:output", () => show(document));
  show(document);
})();
