"use strict";

// The part in the middle: the flow, its input, or one step with its audits; and what the buttons in it do.

(function () {
  const { flow, fields, stamp, announce, readSeverity } = window.ToolFlow;
  if (!flow) return;
  const box = document.getElementById("editor-part");
  const open = new Set(); // pointers of audits that are unfolded

  function render() {
    const at = remember();
    if (flow.step >= 0) renderStep();
    else renderOwn();
    if (!flow.data.may_change) box.querySelectorAll("[data-act]:not([data-look])").forEach((button) => (button.hidden = true));
    restore(at);
    document.dispatchEvent(new CustomEvent("toolflow:part-shown"));
  }

  // Focus and caret stay where they were, where there is such a place still.
  function remember() {
    const active = document.activeElement;
    if (!box.contains(active)) return null;
    const at = { id: active.id, act: active.dataset.act, audit: active.closest("[data-audit]")?.dataset.base, top: box.scrollTop };
    if (active.matches("textarea, input[type=text]")) at.range = [active.selectionStart, active.selectionEnd];
    return at;
  }

  function restore(at) {
    if (!at) return;
    let target = at.id && document.getElementById(at.id);
    if (!target && at.act) {
      const scope = at.audit ? box.querySelector(`[data-audit][data-base="${at.audit}"]`) : box;
      target = (scope || box).querySelector(`[data-act="${at.act}"]`);
    }
    (target || box).focus({ preventScroll: true });
    if (target && at.range && target.setSelectionRange) target.setSelectionRange(...at.range);
    box.scrollTop = at.top;
  }

  function renderOwn() {
    const part = stamp(flow.part === "input" ? "part-input" : "part-flow");
    fields.bind(part, "");
    box.replaceChildren(part);
  }

  function renderStep() {
    const base = `/steps/${flow.step}`;
    const part = stamp("part-step");
    const name = flow.get(`${base}/name`) || "no name yet";
    part.querySelector(".step-number").textContent = flow.step + 1;
    part.querySelector("#part-title").textContent = `Step ${flow.step + 1}, ${name}`;
    part.querySelector(".part-tool").textContent = flow.get(`${base}/tool_name`) || "";
    part.querySelector("[data-act=step-up]").disabled = flow.step === 0;
    part.querySelector("[data-act=step-down]").disabled = flow.step === flow.steps.length - 1;
    part.querySelector("[data-act=step-delete]").disabled = flow.steps.length === 1;
    fields.bind(part, base);
    const audits = flow.auditsOf(flow.step);
    part.querySelector("[data-audits]").append(...audits.map((_, index) => makeAudit(`${base}/audits/${index}`)));
    part.querySelector("[data-act=audit-add]").hidden = audits.length >= flow.data.max_audits;
    part.querySelector("[data-changed]").hidden = !isNews(base);
    box.replaceChildren(part);
  }

  const isNews = (pointer) => flow.data.latest > 0 && flow.isChanged(pointer);

  function makeAudit(base) {
    const item = stamp("part-audit");
    item.dataset.base = base;
    const id = `a${base.replaceAll("/", "-")}`;
    const opener = item.querySelector("[data-act=audit-open]");
    item.querySelector(".audit-fields").id = id;
    opener.id = `${id}-open`;
    item.querySelector("[data-act=audit-grip]").id = `${id}-grip`;
    opener.setAttribute("aria-controls", id);
    showLine(item);
    if (open.has(base) || flow.audit === Number(flow.split(base)[3])) unfold(item);
    else fields.bind(item.querySelector(".audit-line"), base);
    return item;
  }

  // The line of an audit says what it does; its fields are made when they are opened.
  function showLine(item) {
    const audit = flow.get(item.dataset.base) || {};
    const [severity, drawn] = readSeverity(audit);
    const sign = item.querySelector(".audit-severity");
    sign.className = `audit-severity tone-${severity}`;
    sign.replaceChildren(drawn, severity[0].toUpperCase() + severity.slice(1));
    item.querySelector(".audit-what b").textContent = audit.name || "No name yet";
    const rule = typeof audit.rule === "string" ? audit.rule : "";
    item.querySelector(".audit-what code").textContent = audit.for_each ? `for item in ${audit.for_each}: ${rule}` : rule;
    item.querySelector("[data-changed]").hidden = !isNews(item.dataset.base);
  }

  function unfold(item) {
    open.add(item.dataset.base);
    item.classList.add("is-open");
    item.querySelector(".audit-fields").hidden = false;
    item.querySelector("[data-act=audit-open]").setAttribute("aria-expanded", "true");
    fields.bind(item, item.dataset.base);
    const at = Number(flow.split(item.dataset.base)[3]);
    item.querySelector("[data-act=audit-up]").disabled = at === 0;
    item.querySelector("[data-act=audit-down]").disabled = at === flow.auditsOf(flow.step).length - 1;
    if (!flow.data.may_change) item.querySelector(".audit-tools").hidden = true;
    document.dispatchEvent(new CustomEvent("toolflow:part-shown"));
  }

  function fold(item) {
    open.delete(item.dataset.base);
    item.classList.remove("is-open");
    item.querySelector(".audit-fields").hidden = true;
    item.querySelector("[data-act=audit-open]").setAttribute("aria-expanded", "false");
  }

  const slug = (name) =>
    name.normalize("NFKD").replace(/[\u0300-\u036f]/g, "").toLowerCase().replace(/[^a-z0-9]+/g, "_").replace(/^_+/, "").slice(0, 60).replace(/_+$/, "");

  function findFree(name, taken, sign) {
    let found = name;
    for (let number = 2; taken.includes(found); number += 1) found = `${name}${sign}${number}`;
    return found;
  }

  const copyName = (name, taken) => findFree(`${name} copy`, taken, " ");
  const makeToolName = (name, index) => {
    const taken = flow.steps.filter((_, at) => at !== index).map((one) => one.tool_name);
    return findFree(slug(name) || `step_${index + 1}`, taken, "_");
  };

  // The names that programs use are made from those for people, until the user types another.
  const names = new Map();
  function follow(pointer) {
    const [first, index, field, ...rest] = flow.split(pointer);
    const isTitle = pointer === "/title" && !flow.data.flow;
    if (!isTitle && !(first === "steps" && field === "name" && !rest.length)) return;
    const target = isTitle ? "/name" : `/steps/${index}/tool_name`;
    const own = flow.get(target);
    // One that is stored stays: programs may read it.
    if ((own && own !== names.get(target)) || flow.getStored(target) || (!isTitle && flow.get(`/steps/${index}/compute`) !== undefined)) return;
    const name = flow.get(pointer) || "";
    const made = isTitle ? slug(name).replaceAll("_", "-") : name && makeToolName(name, Number(index));
    names.set(target, made);
    flow.set(target, made, "follow");
    const shown = box.querySelector(`[data-pointer="${target}"]`);
    if (shown) fields.fill(shown);
  }

  const steps = {
    insert(at, step, said) {
      if (flow.steps.length >= flow.data.max_steps) return announce(`A flow has at most ${flow.data.max_steps} steps.`);
      flow.insert(`/steps/${at}`, step);
      open.clear();
      flow.select(at);
      fields.focusField(`/steps/${at}/name`);
      announce(`${said} ${at + 1}.`);
    },
    add: () => steps.insert(flow.step < 0 ? flow.steps.length : flow.step + 1, {}, "Added step"),
    copy() {
      const step = flow.steps[flow.step];
      const name = copyName(step.name || "Step", flow.steps.map((one) => one.name));
      const tool = step.tool_name ? { tool_name: makeToolName(name, -1) } : {};
      steps.insert(flow.step + 1, { ...step, name, ...tool }, "Copied to step");
    },
    move(by) {
      const to = flow.step + by;
      if (flow.step < 0 || to < 0 || to >= flow.steps.length) return;
      flow.move(`/steps/${flow.step}`, `/steps/${to}`);
      open.clear();
      flow.select(to, flow.audit);
      announce(`Moved to step ${to + 1} of ${flow.steps.length}.`);
    },
    remove() {
      if (flow.step < 0 || flow.steps.length === 1) return announce("A flow needs at least one step.");
      const name = flow.steps[flow.step].name || `Step ${flow.step + 1}`;
      const at = flow.step;
      flow.remove(`/steps/${at}`);
      open.clear();
      flow.select(Math.min(at, flow.steps.length - 1));
      box.focus();
      announce(`“${name}” deleted. Undo brings it back.`);
    },
  };

  const audits = {
    add() {
      const at = flow.auditsOf(flow.step).length;
      const pointer = `/steps/${flow.step}/audits/${at}`;
      flow.insert(pointer, {});
      flow.select(flow.step, at);
      fields.focusField(`${pointer}/name`);
      announce("Audit added.");
    },
    move(at, by) {
      const to = at + by;
      const list = `/steps/${flow.step}/audits`;
      if (to < 0 || to >= flow.auditsOf(flow.step).length) return;
      const [here, there] = [`${list}/${at}`, `${list}/${to}`];
      const states = [open.has(here), open.has(there)];
      states[1] ? open.add(here) : open.delete(here);
      states[0] ? open.add(there) : open.delete(there);
      const act = document.activeElement.dataset?.act || "audit-grip";
      flow.move(here, there);
      flow.select(flow.step, states[0] ? to : null);
      box.querySelector(`[data-base="${there}"] [data-act=${act}]`)?.focus();
      announce(`Moved to place ${to + 1} of ${flow.auditsOf(flow.step).length}.`);
    },
    copy(at) {
      const list = flow.auditsOf(flow.step);
      const name = copyName(list[at].name || "Audit", list.map((one) => one.name));
      flow.insert(`/steps/${flow.step}/audits/${at + 1}`, { ...list[at], name });
      open.clear();
      flow.select(flow.step, at + 1);
      fields.focusField(`/steps/${flow.step}/audits/${at + 1}/name`);
    },
    remove(at) {
      const name = flow.auditsOf(flow.step)[at].name || "The audit";
      flow.remove(`/steps/${flow.step}/audits/${at}`);
      open.clear();
      flow.select(flow.step);
      box.querySelector("[data-act=audit-add]")?.focus();
      announce(`“${name}” deleted. Undo brings it back.`);
    },
  };

  const at = ({ base }) => Number(flow.split(base)[3]);
  const indexOf = (element) => at(element.closest("[data-audit]").dataset);
  const acts = {
    "step-up": () => steps.move(-1),
    "step-down": () => steps.move(1),
    "step-copy": steps.copy,
    "step-delete": steps.remove,
    "audit-add": audits.add,
    "audit-up": (button) => audits.move(indexOf(button), -1),
    "audit-down": (button) => audits.move(indexOf(button), 1),
    "audit-copy": (button) => audits.copy(indexOf(button)),
    "audit-delete": (button) => audits.remove(indexOf(button)),
    "audit-open"(button) {
      const item = button.closest("[data-audit]");
      if (item.classList.contains("is-open")) fold(item);
      else unfold(item);
    },
  };

  box.addEventListener("click", ({ target }) => {
    const button = target.closest("[data-act]");
    if (button && acts[button.dataset.act]) acts[button.dataset.act](button);
    const side = target.closest("[data-local], [data-blocks]");
    if (side) choose(side);
  });

  function choose(side) {
    const { pointer } = side.closest("[data-pointer]").dataset;
    if (side.dataset.blocks) flow.set(pointer, side.dataset.blocks === "no" ? "never" : undefined);
    else if (side.dataset.local === "no") flow.set(pointer, undefined);
    else if (flow.get(pointer) === undefined) flow.set(pointer, "previous");
    const again = box.querySelector(`[data-pointer="${pointer}"].ef-switch [aria-pressed=true]`);
    again?.focus();
  }

  box.addEventListener("toolflow:reveal", ({ target }) => {
    const item = target.closest("[data-audit]");
    if (item && !item.classList.contains("is-open")) unfold(item);
  });

  window.ToolFlow.makeSortable(box, {
    grip: "[data-act=audit-grip]",
    row: "[data-audit]",
    isMate: () => true,
    move: (from, to) => audits.move(at(from), at(to) - at(from)),
  });

  document.addEventListener("toolflow:flow-selected", render);

  document.addEventListener("toolflow:flow-edited", ({ detail }) => {
    if (detail.kind === "type") {
      follow(detail.pointer);
      const item = [...box.querySelectorAll("[data-audit]")].find((one) => detail.pointer.startsWith(`${one.dataset.base}/`));
      if (item) showLine(item);
      const tool = box.querySelector(".part-tool");
      if (tool && flow.step >= 0) tool.textContent = flow.get(`/steps/${flow.step}/tool_name`) || "";
      const pill = box.querySelector(".part-head [data-changed]");
      if (pill && flow.step >= 0) pill.hidden = !isNews(`/steps/${flow.step}`);
    } else if (detail.kind === "set") render();
  });

  Object.assign(window.ToolFlow, { partActs: { steps, audits } });
})();
