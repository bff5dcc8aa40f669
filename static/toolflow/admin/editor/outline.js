"use strict";

// The outline at the left: all parts of the flow, where something is wrong or changed, and moving by keys or dragging.

(function () {
  const { flow, make, icon, partActs, plural, announce, readSeverity } = window.ToolFlow;
  if (!flow) return;
  const box = document.getElementById("editor-outline");
  let remarks = []; // what the last check reported, each { path, message, tone }

  function makeMarks(pointers) {
    const marks = [];
    const within = remarks.filter(({ path }) => pointers.some((one) => path === one || path.startsWith(`${one}/`)));
    const problems = within.filter(({ tone }) => tone === "wrong").length;
    const warnings = within.length - problems;
    if (problems) marks.push(mark("tone-failed", icon("exclamation-circle"), plural(problems, "problem")));
    else if (warnings) marks.push(mark("tone-medium", icon("exclamation-triangle"), plural(warnings, "warning")));
    if (flow.data.latest && pointers.some((one) => flow.isChanged(one))) marks.push(mark("changed-dot", "", "changed"));
    return marks;
  }

  const mark = (name, sign, words) =>
    make("span", { className: `mark ${name}`, title: words[0].toUpperCase() + words.slice(1) }, sign, make("span", { className: "visually-hidden", textContent: `, ${words}` }));

  function makeRow({ key, step, audit = null, part = "flow", sign, name, note, marks, level }) {
    const button = make("button", { type: "button", className: `row level-${level}`, tabIndex: -1 });
    Object.assign(button.dataset, { key, step, part });
    if (audit !== null) button.dataset.audit = audit;
    button.append(make("span", { className: "row-sign" }, sign), make("bdi", { className: "row-name", textContent: name }));
    if (note) button.append(make("span", { className: "row-note", textContent: note }));
    button.append(...marks);
    if (flow.data.may_change && step >= 0) button.draggable = true;
    return make("li", {}, button);
  }

  const listOwn = (names) => names.map((name) => `/${name}`);
  const OWN = listOwn(["title", "name", "description", "model", "temperature", "max_tokens", "reasoning_effort", "service_tier", "token_budget", "cost_budget", "time_limit", "redact"]);

  function describeInput() {
    try {
      return Object.keys(JSON.parse(flow.get("/input_schema")).properties).slice(0, 4).join(", ");
    } catch {
      return "";
    }
  }

  function render() {
    const focused = box.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    const rows = [
      makeRow({ key: "flow", step: -1, sign: icon("adjustments-horizontal"), name: "Flow and limits", marks: makeMarks(OWN), level: 1 }),
      makeRow({ key: "input", step: -1, part: "input", sign: icon("arrow-right-end-on-rectangle"), name: "Input", note: describeInput(), marks: makeMarks(["/input_schema"]), level: 1 }),
    ];
    flow.steps.forEach((step, index) => rows.push(...makeStepRows(step, index)));
    const top = box.scrollTop;
    box.querySelector(".rows").replaceChildren(...rows);
    box.scrollTop = top;
    const add = document.getElementById("step-add");
    if (add) add.disabled = flow.steps.length >= flow.data.max_steps;
    showCurrent();
    if (focused) (box.querySelector(`[data-key="${focused}"]`) || findCurrent()).focus({ preventScroll: true });
  }

  function makeStepRows(step, index) {
    const base = `/steps/${index}`;
    const rows = [
      makeRow({ key: base, step: index, sign: String(index + 1), name: step.name || "No name yet", note: step.compute === undefined ? "" : "local", marks: makeMarks([base]), level: 2 }),
    ];
    flow.auditsOf(index).forEach((audit, at) => {
      const role = step.pass_expression ? "Rule decides" : audit.fail_at === "never" ? "Warns" : "Blocks";
      const [severity, drawn] = readSeverity(audit);
      const sign = make("span", { className: `tone-${severity}`, title: severity }, drawn, make("span", { className: "visually-hidden", textContent: `${severity} ` }));
      const pointer = `${base}/audits/${at}`;
      rows.push(makeRow({ key: pointer, step: index, audit: at, sign, name: audit.name || "No name yet", note: role, marks: makeMarks([pointer]), level: 3 }));
    });
    return rows;
  }

  const listRows = () => [...box.querySelectorAll(".row")];
  const findCurrent = () => box.querySelector("[aria-current]") || listRows()[0];

  function showCurrent() {
    const key = flow.step < 0 ? flow.part : flow.audit === null ? `/steps/${flow.step}` : `/steps/${flow.step}/audits/${flow.audit}`;
    for (const row of listRows()) {
      const isCurrent = row.dataset.key === key;
      row.tabIndex = isCurrent ? 0 : -1;
      if (isCurrent) row.setAttribute("aria-current", "true");
      else row.removeAttribute("aria-current");
      row.classList.toggle("is-within", row.dataset.key === `/steps/${flow.step}`);
    }
    if (box.scrollHeight > box.clientHeight) findCurrent()?.scrollIntoView({ block: "nearest" });
  }

  function choose(row) {
    const { step, audit, part } = row.dataset;
    flow.select(Number(step), audit === undefined ? null : Number(audit), part);
    if (audit === undefined) document.getElementById("editor-part").scrollTop = 0;
    else document.querySelector(`[data-base="/steps/${step}/audits/${audit}"]`)?.scrollIntoView({ block: "nearest" });
  }

  // The step before or after the one that is shown; the flow and its input come first.
  function go(by) {
    const stops = [[-1, "flow"], [-1, "input"], ...flow.steps.map((_, index) => [index, "flow"])];
    const now = stops.findIndex(([step, part]) => step === flow.step && part === flow.part);
    const [step, part] = stops[Math.max(0, Math.min(now + by, stops.length - 1))];
    const isInPart = !box.contains(document.activeElement);
    flow.select(step, null, part);
    document.getElementById("editor-part").scrollTop = 0;
    if (isInPart) document.getElementById("editor-part").focus();
    else findCurrent().focus();
    announce(document.getElementById("part-title").textContent);
  }

  box.addEventListener("click", ({ target }) => {
    const row = target.closest(".row");
    if (row) choose(row);
    else if (target.closest("#step-add")) partActs.steps.add();
  });

  box.addEventListener("keydown", (event) => {
    const row = event.target.closest(".row");
    if (!row || event.ctrlKey || event.metaKey || event.altKey) return;
    const rows = listRows();
    const at = rows.indexOf(row);
    const target = { ArrowDown: rows[at + 1], ArrowUp: rows[at - 1], Home: rows[0], End: rows.at(-1) }[event.key];
    if (target) {
      event.preventDefault();
      target.focus();
      choose(target);
    } else if (event.key === "Delete" && flow.data.may_change && Number(row.dataset.step) >= 0) {
      event.preventDefault();
      if (row.dataset.audit === undefined) partActs.steps.remove();
      else partActs.audits.remove(Number(row.dataset.audit));
      findCurrent().focus();
    }
  });

  document.addEventListener("keydown", (event) => {
    if (!event.altKey || event.ctrlKey || event.metaKey || !["ArrowUp", "ArrowDown"].includes(event.key)) return;
    if (!event.target.closest("#editor, body") || document.getElementById("editor").hidden) return;
    event.preventDefault();
    const by = event.key === "ArrowUp" ? -1 : 1;
    if (!event.shiftKey) return go(by);
    if (!flow.data.may_change) return;
    const row = event.target.closest(".row");
    const audit = row?.dataset.audit ?? flow.split(event.target.closest("[data-audit]")?.dataset.base ?? "")[3];
    if (audit !== undefined) partActs.audits.move(Number(audit), by);
    else partActs.steps.move(by);
    if (row) findCurrent().focus();
  });

  // Steps are dragged among steps, audits among those of their step.
  window.ToolFlow.makeSortable(box, {
    grip: ".row[draggable]",
    row: ".row",
    isMate: (from, to) =>
      (from.audit === undefined) === (to.audit === undefined) && (from.audit === undefined ? Number(to.step) >= 0 : from.step === to.step),
    move({ step, audit }, to) {
      const [from, target] = audit === undefined ? [`/steps/${step}`, `/steps/${to.step}`] : [`/steps/${step}/audits/${audit}`, `/steps/${step}/audits/${to.audit}`];
      flow.move(from, target);
      flow.select(Number(to.step), audit === undefined ? null : Number(to.audit));
    },
  });

  let waiting = 0;
  const renderSoon = () => {
    clearTimeout(waiting);
    waiting = setTimeout(render, 150);
  };
  document.addEventListener("toolflow:flow-edited", ({ detail }) => (["type", "follow"].includes(detail.kind) ? renderSoon() : render()));
  document.addEventListener("toolflow:flow-selected", showCurrent);
  document.addEventListener("toolflow:remarks", ({ detail }) => {
    if (JSON.stringify(detail) === JSON.stringify(remarks)) return;
    remarks = detail;
    render();
  });

  render();
})();
