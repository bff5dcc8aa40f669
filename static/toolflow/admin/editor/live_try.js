"use strict";

// Tries the step without saving the flow: on a past run or typed values, with the request that would be sent, and one
// call of the model where that is asked for. It is in the live panel, and follows what one types while it is open.

window.ToolFlow = window.ToolFlow || {};

(function () {
  const { flow, make, send, findToken, announce, live } = window.ToolFlow;
  const fold = document.getElementById("live-try");
  const body = document.getElementById("live-try-body");
  if (!flow || !live || !fold) return;
  const SETTLED = 1000; // milliseconds without a change: what was judged again comes first
  const { data } = flow;
  let timer = 0;
  let shownStep = null; // the one whose panel is there
  let underWay = null; // the action that is being answered
  let pending = null; // the one that follows it

  const panel = () => body.querySelector("#try-form");

  function collect(action) {
    const form = panel();
    const posted = form && action !== "open" ? new FormData(form) : new FormData();
    posted.set("flow", data.flow === null ? "" : data.flow);
    posted.set("document", JSON.stringify(flow.document));
    posted.set("try_step", flow.step + 1);
    posted.set("try_action", action);
    return posted;
  }

  const isClicked = (action) => action !== null && !["open", "preview"].includes(action);

  function setUnderWay(action) {
    underWay = action;
    body.setAttribute("aria-busy", String(action !== null));
    for (const button of body.querySelectorAll("[data-live-action]")) {
      // Not “disabled”: that would take the focus away.
      button.setAttribute("aria-disabled", String(isClicked(action)));
      button.classList.toggle("is-under-way", button.dataset.liveAction === action);
    }
  }

  // One question at a time, so that a second click sends nothing twice; one while the panel follows what was typed waits.
  async function ask(action) {
    clearTimeout(timer);
    if (!fold.open || flow.step < 0) return;
    if (underWay) {
      if (!isClicked(action)) pending = pending || action;
      else if (!isClicked(underWay)) pending = action;
      return;
    }
    const step = flow.step;
    if (shownStep !== step || !panel()) action = "open";
    setUnderWay(action);
    if (action === "call") announce("Waiting for the model.");
    try {
      const headers = { "X-CSRFToken": findToken() };
      const { answer } = await send(data.urls.try, { method: "POST", headers, body: collect(action) });
      if (step !== flow.step) pending = "open";
      else show(answer, action, step);
    } catch (error) {
      showNote(error.message);
      if (error.wait && action === "preview") timer = setTimeout(() => ask("preview"), error.wait * 1000);
    } finally {
      setUnderWay(null);
    }
    const next = pending;
    pending = null;
    if (next) ask(next);
  }

  function show(answer, action, step) {
    const holder = document.createElement("template");
    holder.innerHTML = answer.html;
    const old = panel();
    const came = holder.content.querySelector("#try-form");
    if (action === "open" || !old || !old.querySelector("#try-run") || !came.querySelector("#try-run")) {
      body.replaceChildren(came);
      shownStep = step;
    } else {
      // What is for typing in stays as it is.
      old.dataset.basis = came.dataset.basis;
      old.dataset.python = came.dataset.python;
      for (const part of came.querySelectorAll("[data-try-part]")) {
        const present = document.getElementById(part.id);
        const content = document.createDocumentFragment();
        content.append(...part.childNodes);
        // An answer of the last request may be what one reads: only another action takes it away.
        if (part.id === "try-verdict" && action === "preview" && !content.querySelector(".live-attempt-head")) continue;
        if (present) live.swap(present, content);
      }
    }
    if (action !== "preview" && action !== "open") {
      announce(answer.announcement);
      if (action !== "judge") body.querySelector("#try-verdict").scrollIntoView({ block: "nearest" });
    }
  }

  // Built here and not by the server: there may be no server to build it.
  function showNote(sentence) {
    (body.querySelector("#try-found") || body).replaceChildren(make("p", { className: "live-problem", textContent: sentence }));
    announce(sentence);
  }

  fold.addEventListener("toggle", () => {
    if (fold.open && shownStep !== flow.step) ask("open");
    else if (fold.open) ask("preview");
  });
  body.addEventListener("click", (event) => {
    const button = event.target.closest("[data-live-action]");
    const link = event.target.closest("a[href^='#try-']");
    if (button && button.getAttribute("aria-disabled") !== "true") ask(button.dataset.liveAction);
    if (link) {
      event.preventDefault();
      document.getElementById(link.hash.slice(1))?.focus();
    }
  });
  body.addEventListener("change", (event) => {
    if (!event.target.matches("[data-live-change]")) return;
    // A chosen run takes the place of a typed number.
    if (event.target.name === "try_basis" && body.querySelector("#try-number")) body.querySelector("#try-number").value = "";
    ask("preview");
  });
  body.addEventListener("submit", (event) => {
    event.preventDefault();
    ask("preview");
  });
  document.addEventListener("toolflow:flow-edited", ({ detail }) => {
    if (live.isOfSteps(detail)) shownStep = null;
    clearTimeout(timer);
    if (shownStep === null || panel()?.dataset.python !== "yes") timer = setTimeout(() => ask("preview"), SETTLED);
  });
  document.addEventListener("toolflow:flow-selected", () => {
    if (flow.step >= 0 && shownStep !== flow.step) ask("open");
  });
})();
