// What was typed into the form of a new run comes back if the session had ended when it was sent: after signing in, here
// or through a provider, the user finds it as it was. It is kept in this tab only, until the next page with such a form
// or with a run; the page to sign in, which lies between, notes that it was there.
"use strict";

(() => {
  const PREFIX = "toolflow:typed:";
  const FIXED = ["csrfmiddlewaretoken", "from", "version"];

  const form = document.querySelector("form.start");
  const key = form && PREFIX + form.action;

  const listKept = () => Object.keys(sessionStorage).filter((name) => name.startsWith(PREFIX));

  function noteSignIn() {
    for (const name of listKept()) {
      const kept = JSON.parse(sessionStorage.getItem(name));
      sessionStorage.setItem(name, JSON.stringify({ ...kept, hasMetSignIn: true }));
    }
  }

  function take() {
    const kept = form && sessionStorage.getItem(key);
    for (const name of listKept()) sessionStorage.removeItem(name);
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

  function bringBack({ user, typed, hasMetSignIn, isOnItsWay }) {
    if (user !== form.dataset.user || !(hasMetSignIn || isOnItsWay)) return;
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

  if (document.querySelector("form.sign-in")) {
    noteSignIn();
    return;
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
