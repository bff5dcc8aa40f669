// What was typed into the form of a new run comes back if the session had ended when it was sent: whoever sent it signs
// in, and finds it as it was. It is kept in this tab only, until the next page with such a form or with a run.
"use strict";

(() => {
  const PREFIX = "toolflow:typed:";
  const FIXED = ["csrfmiddlewaretoken", "from", "version"];

  const form = document.querySelector("form.start");
  const key = form && PREFIX + form.action;

  function take() {
    const kept = form && sessionStorage.getItem(key);
    for (const name of Object.keys(sessionStorage)) if (name.startsWith(PREFIX)) sessionStorage.removeItem(name);
    return kept ? JSON.parse(kept) : null;
  }

  function fillIn(typed) {
    for (const box of form.querySelectorAll("input[type=checkbox]")) box.checked = false;
    for (const [name, value] of typed) {
      const field = form.elements.namedItem(name);
      if (!field || field.type === "hidden") continue;
      if (field.type === "checkbox") field.checked = true;
      else if (field.value !== value) {
        field.value = value;
        field.closest("details")?.setAttribute("open", "");
        field.dispatchEvent(new Event("input", { bubbles: true }));
      }
    }
  }

  function bringBack({ user, typed, isOnItsWay }) {
    const hasSignedIn = document.referrer.split("?")[0] === new URL(form.dataset.signIn, location.href).href;
    if (user !== form.dataset.user || !(hasSignedIn || isOnItsWay)) return;
    const view = typed.find(([name]) => name === "view")[1];
    if (view === form.elements.namedItem("view").value || isOnItsWay) {
      fillIn(typed);
      return;
    }
    // It was typed into the other view.
    sessionStorage.setItem(key, JSON.stringify({ user, typed, isOnItsWay: true }));
    const url = new URL(location.href);
    url.searchParams.set("view", view);
    location.replace(url);
  }

  const kept = take();
  if (kept) bringBack(kept);
  form?.addEventListener("submit", () => {
    const typed = [...new FormData(form)].filter(([name]) => !FIXED.includes(name));
    try {
      sessionStorage.setItem(key, JSON.stringify({ user: form.dataset.user, typed }));
    } catch {
      // Longer than a tab may keep: then it has to be typed again.
    }
  });
})();
