// Going through a run with the keyboard. Keys move the focus, so that the rest of the keyboard goes on from there; they
// are left alone while somebody types, and whoever's own keys they get in the way of turns them off.
"use strict";

(() => {
  const OFF = "toolflow.keys-off";
  const ATTEMPTS = ".run details.attempt > summary";
  const STEPS = ".run .step h2";

  // Private windows may refuse to keep anything.
  const read = () => {
    try {
      return localStorage.getItem(OFF) !== null;
    } catch {
      return false;
    }
  };
  let isOff = read();

  // The next of these parts after the focus, or the one before it. Without a focus in the run it is the first one that
  // can be seen, or the last one above it.
  function findNext(selector, direction) {
    const parts = [...document.querySelectorAll(selector)].filter((part) => part.checkVisibility());
    const focused = document.activeElement?.closest(".run") ? document.activeElement : null;
    const top = document.querySelector(".severity-bar")?.getBoundingClientRect().bottom ?? 0;
    const isAfter = (part) =>
      focused
        ? focused.compareDocumentPosition(part) & Node.DOCUMENT_POSITION_FOLLOWING
        : part.getBoundingClientRect().top >= top;
    const isBefore = (part) =>
      focused
        ? focused.compareDocumentPosition(part) & Node.DOCUMENT_POSITION_PRECEDING
        : part.getBoundingClientRect().top < top;
    return direction > 0 ? parts.find(isAfter) : parts.findLast(isBefore);
  }

  function go(selector, direction) {
    const part = findNext(selector, direction);
    if (!part) return;
    part.focus({ preventScroll: true });
    part.scrollIntoView({ block: "nearest" });
  }

  function toggleAttempt() {
    document.activeElement?.closest("details.attempt")?.querySelector("summary").click();
  }

  function showHelp() {
    let dialog = document.getElementById("keys-dialog");
    if (!dialog) {
      document.body.append(document.getElementById("keys-help").content.cloneNode(true));
      dialog = document.getElementById("keys-dialog");
      const choice = dialog.querySelector("#keys-on");
      choice.checked = !isOff;
      choice.addEventListener("change", () => {
        isOff = !choice.checked;
        try {
          if (isOff) localStorage.setItem(OFF, "");
          else localStorage.removeItem(OFF);
        } catch {
          // It holds for this page then.
        }
      });
      // A click beside it closes it, as Escape does.
      dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
    }
    dialog.showModal();
  }

  const actions = {
    j: () => go(ATTEMPTS, 1),
    k: () => go(ATTEMPTS, -1),
    "]": () => go(STEPS, 1),
    "[": () => go(STEPS, -1),
    o: toggleAttempt,
    "?": showHelp,
  };

  // A heading takes the focus only if it is said to, also one that an update brings.
  function prepare(part) {
    for (const heading of part.querySelectorAll(".step-head h2")) heading.tabIndex = -1;
  }
  document.addEventListener("htmx:oobBeforeSwap", (event) => prepare(event.detail.fragment));
  prepare(document);

  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.closest("input, select, textarea, [contenteditable]");
    // On many keyboards brackets need AltGr, which some systems tell as Ctrl and Alt.
    const isOther = (event.ctrlKey || event.altKey || event.metaKey) && !event.getModifierState("AltGraph");
    if (isOff || isTyping || isOther || event.isComposing || event.defaultPrevented) return;
    if (document.querySelector("dialog[open]") || !Object.hasOwn(actions, event.key)) return;
    event.preventDefault();
    actions[event.key]();
  });

  document.addEventListener("click", (event) => {
    if (event.target.closest("#keys")) showHelp();
  });
})();
