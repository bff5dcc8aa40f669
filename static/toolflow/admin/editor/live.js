"use strict";

// The panel beside the editor: past outputs of the step judged again as one types, and what is wrong with the step.
// It asks once typing pauses, one question at a time, and keeps the last answer until the next one is there.

window.ToolFlow = window.ToolFlow || {};

(function () {
  const { flow, ask, announce, stamp } = window.ToolFlow;
  const live = document.getElementById("editor-live");
  if (!flow || !live || !live.children.length) return;
  const SETTLED = 300; // milliseconds without a change
  const find = (id) => document.getElementById(id);
  const part = find("live-part");
  const judged = find("live-judged");
  const lint = find("live-lint");
  const state = find("live-state");

  let timer = 0;
  let isAsking = false;
  let isPending = false;
  let shown = { key: null, html: "", sums: "" };
  let remarks = [];

  // ----- Judging -----

  function schedule(wait = SETTLED) {
    clearTimeout(timer);
    timer = setTimeout(judge, wait);
  }

  async function judge({ python = false } = {}) {
    clearTimeout(timer);
    if (flow.step < 0) return;
    if (isAsking) {
      isPending = true;
      return;
    }
    const key = flow.step;
    isAsking = true;
    judged.setAttribute("aria-busy", "true");
    try {
      const posted = { flow: flow.data.flow, document: flow.document, step: flow.step + 1, python };
      const answer = await ask(flow.data.urls.judge, posted);
      if (answer.error) throw Object.assign(new Error(answer.error), { wait: 0 });
      if (key === flow.step) show(answer, key);
    } catch (error) {
      state.textContent = error.wait ? `${error.message} Trying again.` : error.message;
      if (error.wait) schedule(error.wait * 1000);
    } finally {
      isAsking = false;
      judged.removeAttribute("aria-busy");
      if (isPending) {
        isPending = false;
        judge();
      }
    }
  }

  function show(answer, key) {
    const sums = `${answer.passed},${answer.failed},${answer.changed}`;
    state.textContent = answer.is_judged ? `${Math.max(answer.seconds, 0.1).toFixed(1)} s, no model called` : "";
    const isNew = shown.key !== key;
    if (!isNew && shown.html === answer.html) return;
    const holder = document.createElement("template");
    holder.innerHTML = answer.html;
    const problem = holder.content.querySelector("[data-live=problem]");
    const isKept = !isNew && !answer.is_judged && problem && judged.querySelector(".live-squares");
    judged.classList.toggle("is-stale", Boolean(isKept));
    if (isKept) {
      judged.querySelector("[data-live=problem]")?.remove();
      judged.prepend(problem);
    } else {
      swap(judged, holder.content);
    }
    if (shown.sums !== sums && !isNew && answer.is_judged) announce(judged.querySelector("h3")?.textContent || "");
    shown = { key, html: answer.html, sums: answer.is_judged ? sums : shown.sums };
  }

  // Puts new content in a box; what was unfolded stays so, and the focus stays where it was if there is such a place.
  function swap(box, content) {
    const active = box.contains(document.activeElement) ? document.activeElement : null;
    const states = new Map([...box.querySelectorAll("details")].map((fold) => [fold.id, fold.open]));
    const address = active && active.getAttribute("href");
    const inFold = active && active.matches("summary") ? active.parentElement.id : "";
    for (const fold of content.querySelectorAll("details")) fold.open = states.get(fold.id) ?? fold.open;
    box.replaceChildren(content);
    if (!active) return;
    const again =
      (active.id && find(active.id)) ||
      (inFold && find(inFold)?.querySelector("summary")) ||
      (address && box.querySelector(`a[href="${CSS.escape(address)}"]`)) ||
      live;
    again.focus({ preventScroll: true });
  }

  // ----- Problems and warnings -----

  function showRemarks() {
    const own = `/steps/${flow.step}`;
    const found = remarks.filter(({ path }) => path === own || path.startsWith(`${own}/`));
    const lines = found.map(({ path, message, tone }) => {
      const line = stamp(tone === "wrong" ? "live-problem-line" : "live-warning-line");
      const link = line.querySelector("a");
      link.textContent = nameField(path);
      link.dataset.path = path;
      // Warnings begin with their place, which the link says.
      line.querySelector("bdi").textContent = message.replace(/^Step \d+(?: “[^”]*”)?(?:, [^:]*)?: /, "");
      return line;
    });
    lint.hidden = !lines.length;
    lint.querySelector("ul").replaceChildren(...lines);
  }

  function nameField(path) {
    const [, , ...rest] = flow.split(path);
    if (rest[0] === "audits" && rest.length > 1) {
      const name = flow.get(`/steps/${flow.step}/audits/${rest[1]}/name`);
      const audit = typeof name === "string" && name ? name : `Audit ${Number(rest[1]) + 1}`;
      return rest[2] ? `${audit}, ${rest[2].replaceAll("_", " ")}` : audit;
    }
    const words = rest.join("/").replaceAll("_", " ");
    return words ? words[0].toUpperCase() + words.slice(1) : "Step";
  }

  document.addEventListener("toolflow:remarks", ({ detail }) => {
    remarks = detail;
    showRemarks();
  });

  // ----- What is shown -----

  function look() {
    const isStep = flow.step >= 0;
    part.hidden = !isStep;
    find("live-none").hidden = isStep;
    if (!isStep) state.textContent = "";
    if (isStep && shown.key !== flow.step) {
      shown = { key: null, html: "", sums: "" };
      judged.replaceChildren();
      judged.classList.remove("is-stale");
      state.textContent = "Judging…";
      schedule(0);
    }
    showRemarks();
  }

  live.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-path]");
    if (link) {
      event.preventDefault();
      const [, , list, at] = flow.split(link.dataset.path);
      flow.select(flow.step, list === "audits" && at !== undefined ? Number(at) : null);
      window.ToolFlow.fields.focusField(link.dataset.path);
    } else if (event.target.closest("[data-live-action=python]")) {
      judge({ python: true });
    }
  });
  // Where steps come, go or move, another one may be at this place.
  const isOfSteps = ({ kind, pointer }) => ["insert", "remove", "move", "undo"].includes(kind) && /^(\/steps(\/\d+)?)?$/.test(pointer);
  document.addEventListener("toolflow:flow-selected", look);
  document.addEventListener("toolflow:flow-edited", ({ detail }) => {
    if (isOfSteps(detail)) shown.key = null;
    schedule();
  });
  window.ToolFlow.live = { swap, isOfSteps };
  look();
})();
