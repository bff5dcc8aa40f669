// Going through a run with the keyboard. Keys move the focus, so that the rest of the keyboard goes on from there; they
// are left alone while the user types, and can be turned off.
"use strict";

(() => {
  const OFF = "toolflow.keys-off";
  // Private windows may refuse to keep anything.
  const read = () => {
    try {
      return localStorage.getItem(OFF) !== null;
    } catch {
      return false;
    }
  };
  let isOff = read();

  // The entry after the selected one, or before it; those that the filter hides are passed over.
  function go(selector, direction) {
    const all = [...document.querySelectorAll(selector)];
    const now = all.findIndex((link) => link.hasAttribute("aria-current"));
    const others = direction > 0 ? all.slice(now + 1) : all.slice(0, Math.max(now, 0)).reverse();
    // Where there is no room for the outline, none of it can be seen.
    const isFolded = !all.some((link) => link.checkVisibility());
    const link = others.find((one) => isFolded || one.checkVisibility());
    if (link) window.selectEntry(link);
  }

  function goToIssue() {
    const issues = [...document.querySelectorAll("#pane .issue")].filter((one) => one.checkVisibility());
    const now = issues.indexOf(document.activeElement?.closest(".issue"));
    const issue = issues[(now + 1) % issues.length];
    issue?.focus({ preventScroll: true });
    issue?.scrollIntoView({ block: "nearest" });
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
    j: () => go(".outline a[data-entry]", 1),
    k: () => go(".outline a[data-entry]", -1),
    "]": () => go("#pane-head a[data-tab]", 1),
    "[": () => go("#pane-head a[data-tab]", -1),
    i: goToIssue,
    "?": showHelp,
  };

  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.closest("input, select, textarea, [contenteditable]");
    // On many keyboards brackets need AltGr, which some systems report as Ctrl and Alt.
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
