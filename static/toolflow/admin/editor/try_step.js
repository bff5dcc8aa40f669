"use strict";

// Tries a step without saving the flow. The panel is a dialog of its own, outside of the flow's form: what is chosen in
// it is never saved. On a wide window it stands beside the editor, so that one sees what a change does; else it covers it.

(function () {
  const wide = window.matchMedia("(min-width: 1180px)");
  let form = null;
  let dialog = null;
  let body = null;
  let status = null;
  let opener = null;
  let isBusy = false;
  let isPending = false;

  function makeDialog() {
    dialog = document.createElement("dialog");
    dialog.className = "try-step";
    dialog.setAttribute("aria-labelledby", "try-title");
    body = document.createElement("div");
    status = document.createElement("p");
    status.className = "visually-hidden";
    status.setAttribute("role", "status");
    dialog.append(status, body);
    document.body.append(dialog);
    dialog.addEventListener("click", onClick);
    dialog.addEventListener("change", (event) => {
      if (event.target.matches("[data-try-change]")) ask("preview");
    });
    dialog.addEventListener("submit", (event) => {
      event.preventDefault();
      ask("preview");
    });
    dialog.addEventListener("keydown", (event) => {
      // Beside the editor the dialog is not modal, and browsers close only modal ones.
      if (event.key === "Escape" && !event.defaultPrevented) {
        event.preventDefault();
        dialog.close();
      }
    });
    dialog.addEventListener("close", () => {
      if (opener && opener.isConnected) opener.focus();
    });
  }

  function show() {
    if (dialog.open) return;
    if (wide.matches) dialog.show();
    else dialog.showModal();
  }

  function say(sentence) {
    status.textContent = sentence;
  }

  // Built here and not by the server: there may be no server to build it.
  function showTrouble(sentence) {
    const problem = document.createElement("p");
    problem.className = "try-problem";
    problem.textContent = sentence;
    const place = body.querySelector("#try-problems");
    if (place) {
      place.replaceChildren(problem);
      problem.scrollIntoView({ block: "nearest" });
    } else {
      const title = document.createElement("h2");
      title.id = "try-title";
      title.tabIndex = -1;
      title.textContent = "Try this step";
      const close = document.createElement("button");
      close.type = "button";
      close.className = "tf-button";
      close.dataset.tryClose = "";
      close.textContent = "Close";
      const box = document.createElement("div");
      box.className = "try-empty";
      box.append(title, problem, close);
      body.replaceChildren(box);
      title.focus();
    }
    say(sentence);
  }

  function readPanel() {
    return body.querySelector("#try-form");
  }

  function collect(action, prefix) {
    const data = new FormData(form);
    const panel = readPanel();
    if (panel) for (const [name, value] of new FormData(panel)) data.append(name, value);
    data.set("flow", form.dataset.flow);
    data.set("try_step", prefix);
    data.set("try_action", action);
    return data;
  }

  async function readAnswer(response) {
    if (response.redirected) return { trouble: "You are no longer signed in. Sign in in another tab, then try again." };
    const text = await response.text();
    if (response.headers.get("Content-Type").startsWith("application/json")) {
      return { trouble: JSON.parse(text).error || "The server refused this." };
    }
    const holder = document.createElement("template");
    holder.innerHTML = text;
    const panel = holder.content.querySelector("#try-form");
    if (panel) return { panel };
    if (response.status === 403) return { trouble: "Your account may not do this." };
    return { trouble: `The server answered with an error (${response.status}). Nothing is lost: try again.` };
  }

  // Of the whole panel that came, shows what is not for typing in, and keeps the reader where they are.
  function swap(panel) {
    const focused = document.activeElement ? document.activeElement.id : "";
    const scrolled = dialog.scrollTop;
    const folds = [...body.querySelectorAll("#try-request details")].map((fold) => fold.open);
    for (const part of panel.querySelectorAll("[data-try-part]")) {
      const present = document.getElementById(part.id);
      if (present) present.replaceWith(part);
    }
    const unfolded = [...body.querySelectorAll("#try-request details")];
    if (unfolded.length === folds.length) unfolded.forEach((fold, index) => (fold.open = folds[index]));
    dialog.scrollTop = scrolled;
    const again = focused && document.getElementById(focused);
    if (again && again !== document.activeElement) again.focus({ preventScroll: true });
    say(panel.dataset.announce);
  }

  function setBusy(busy, action) {
    isBusy = busy;
    dialog.setAttribute("aria-busy", String(busy));
    for (const button of dialog.querySelectorAll("[data-try-action]")) {
      // Not “disabled”: that would take the focus away.
      button.setAttribute("aria-disabled", String(busy));
      button.classList.toggle("is-under-way", busy && button.dataset.tryAction === action);
    }
  }

  // One request at a time, so that a second click sends nothing twice.
  async function ask(action, prefix) {
    if (isBusy) {
      isPending = isPending || action === "preview";
      return;
    }
    const panel = readPanel();
    const step = prefix || (panel && panel.dataset.step);
    if (!step) return;
    const isNew = action === "open" || !body.querySelector("#try-basis");
    setBusy(true, action);
    if (action === "call") say("Waiting for the model.");
    const stale = body.querySelector("#try-stale");
    if (stale) stale.hidden = true;
    try {
      const data = collect(isNew ? "open" : action, step);
      const answer = await readAnswer(await fetch(form.dataset.tryUrl, { method: "POST", body: data }));
      if (answer.trouble) {
        showTrouble(answer.trouble);
      } else if (isNew) {
        body.replaceChildren(answer.panel);
        body.querySelector("#try-title").focus();
      } else {
        swap(answer.panel);
      }
    } catch {
      showTrouble("The server can't be reached. Nothing is lost: try again in a moment.");
    } finally {
      setBusy(false, action);
    }
    const verdict = body.querySelector("#try-verdict");
    if (verdict && action === "judge") verdict.scrollIntoView({ block: "nearest" });
    if (verdict && action === "call") verdict.scrollIntoView({ block: "start" });
    if (isPending) {
      isPending = false;
      ask("preview");
    }
  }

  function onClick(event) {
    const button = event.target.closest("[data-try-action]");
    if (button) {
      event.preventDefault();
      if (button.getAttribute("aria-disabled") !== "true") ask(button.dataset.tryAction);
    } else if (event.target.closest("[data-try-close]")) {
      dialog.close();
    } else if (event.target.closest("[data-try-field], [data-try-own]")) {
      followLink(event);
    }
  }

  // A link to a field of the editor: it may be folded away, or behind the dialog.
  function followLink(event) {
    const link = event.target.closest("a");
    const field = document.getElementById(link.hash.slice(1));
    event.preventDefault();
    if (!field) return;
    if (link.matches("[data-try-field]")) {
      for (let fold = field.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
      if (dialog.matches(":modal")) {
        // The focus goes to the field, and not back.
        opener = null;
        dialog.close();
      }
    }
    field.scrollIntoView({ block: "center" });
    field.focus({ preventScroll: true });
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-try-step]");
    if (!button) return;
    const card = button.closest(".step");
    form = button.closest("form");
    if (!dialog) makeDialog();
    opener = button;
    const panel = readPanel();
    if (panel && panel.dataset.step !== card.id) body.replaceChildren();
    show();
    ask("open", card.id);
  });

  function markStale(event) {
    const stale = body && event.target.closest("#flow_form") && body.querySelector("#try-stale");
    if (stale) stale.hidden = false;
  }
  for (const change of ["input", "change", "formset:added", "formset:removed", "formset:moved"]) {
    document.addEventListener(change, markStale);
  }
})();
