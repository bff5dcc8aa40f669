"use strict";

// Warns before the page is left with something on it that is not saved: typed, moved, added or deleted.

(() => {
  let saved = null;
  let isLeaving = false;

  const form = () => document.getElementById("flow_form");
  const read = () => new URLSearchParams(new FormData(form())).toString();

  window.addEventListener("load", () => {
    if (!form() || !form().querySelector("[name=_save], [name=_overwrite]")) return;
    // Going back shows what is stored, and not what a browser remembers of fields that may be others by now.
    form().autocomplete = "off";
    form().autocapitalize = "off";
    // What could not be saved comes back as it was typed, and is not saved yet.
    saved = form().querySelector(".problems, .conflict") ? "" : read();
  });

  document.addEventListener("submit", (event) => {
    if (event.target.id === "flow_form" && !event.defaultPrevented) isLeaving = true;
  });

  window.addEventListener("beforeunload", (event) => {
    if (saved !== null && !isLeaving && read() !== saved) event.preventDefault();
  });

  // A browser may keep the page as it was left. After saving that is an old one.
  window.addEventListener("pageshow", (event) => {
    if (event.persisted && isLeaving) window.location.reload();
    isLeaving = false;
  });
})();
