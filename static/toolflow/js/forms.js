// Forms: a field reads in the direction of most of its letters, as the server decides too; and what was wrong with a
// field is no longer shown once the field is changed.
"use strict";

(() => {
  const RIGHT_TO_LEFT = /\p{Script=Arabic}|\p{Script=Hebrew}|\p{Script=Syriac}|\p{Script=Thaana}|\p{Script=Nko}/gu;
  const LONGEST = 2_000;

  function findDirection(text) {
    const letters = text.slice(0, LONGEST).match(/\p{L}/gu)?.join("") ?? "";
    const count = letters.match(RIGHT_TO_LEFT)?.length ?? 0;
    return 2 * count > [...letters].length ? "rtl" : "ltr";
  }

  function removeProblem(field) {
    field.removeAttribute("aria-invalid");
    const about = document.getElementById(`${field.id}-about`);
    for (const problem of about?.querySelectorAll(".error") ?? []) problem.remove();
    for (const link of document.querySelectorAll(".problems a")) {
      if (link.hash === `#${field.id}`) link.closest("li").remove();
    }
    const summary = document.querySelector(".problems");
    if (summary && !summary.querySelector("li")) summary.remove();
  }

  document.addEventListener("input", ({ target }) => {
    if (target.matches("[data-direction]")) target.dir = findDirection(target.value);
    if (target.matches('form [aria-invalid="true"]')) removeProblem(target);
  });

  // A link of the summary leads into the field, also where it is folded away.
  document.addEventListener("click", (event) => {
    const link = event.target.closest('.problems a[href^="#"]');
    const field = link && document.getElementById(link.hash.slice(1));
    if (!field) return;
    event.preventDefault();
    field.closest("details")?.setAttribute("open", "");
    field.focus();
  });
})();
