"use strict";

// The flow as one document: what it holds, what was undone, and which part of it is shown.
// A document is never changed in place: each change makes a new one that shares what stayed the same, so that every
// step of undo is kept for nothing.

(function () {
  const source = document.getElementById("editor-data");
  if (!source) return;
  const data = JSON.parse(source.textContent);
  const MOST_UNDONE = 300;
  const PAUSE = 1200; // milliseconds after which typing on is a change of its own
  const MOST_KEPT = 20; // steps of undo that outlive the page

  let current = data.document;
  let step = -1;
  let audit = null;
  let part = "flow"; // of the flow's own part: "flow" or "input"
  const past = [];
  const future = [];
  let last = { pointer: null, time: 0 };

  const split = (pointer) =>
    pointer.split("/").slice(1).map((key) => key.replaceAll("~1", "/").replaceAll("~0", "~"));
  const join = (keys) => keys.map((key) => `/${String(key).replaceAll("~", "~0").replaceAll("/", "~1")}`).join("");
  const isEmpty = (value) =>
    value === undefined || value === null || value === "" || (Array.isArray(value) && !value.length);

  const read = (root, keys) =>
    keys.reduce(
      (value, key) => (typeof value === "object" && value !== null && Object.hasOwn(value, key) ? value[key] : undefined),
      root,
    );

  // The document with another value in one place; without the field if nothing is left to say there.
  function put(node, [key, ...rest], value) {
    const copy = Array.isArray(node) ? [...node] : { ...node };
    const next = rest.length ? put(copy[key] === undefined ? {} : copy[key], rest, value) : value;
    if (isEmpty(next) && !Array.isArray(node)) delete copy[key];
    else copy[key] = next;
    return copy;
  }

  const edit = (keys, value) => (keys.length ? put(current, keys, value) : value);

  function remember(pointer, isTyping) {
    const now = Date.now();
    const goesOn = isTyping && last.pointer === pointer && now - last.time < PAUSE && !future.length;
    last = { pointer: isTyping ? pointer : null, time: now };
    if (goesOn) return;
    past.push({ document: current, step, audit, part });
    if (past.length > MOST_UNDONE) past.shift();
    future.length = 0;
  }

  function notify(pointer, kind) {
    document.dispatchEvent(new CustomEvent("toolflow:flow-edited", { detail: { pointer, kind } }));
  }

  function change(pointer, kind, make) {
    if (!data.may_change) return;
    if (kind !== "follow") remember(pointer, kind === "type");
    current = make();
    notify(pointer, kind);
  }

  // `kind` "type" is said by the field itself, which shows the value already; "follow" of a value that goes with it, and
  // is undone with it; "set" by all others.
  function set(pointer, value, kind = "set") {
    const keys = split(pointer);
    const before = read(current, keys);
    if (JSON.stringify(before) === JSON.stringify(isEmpty(value) ? undefined : value)) return;
    change(pointer, kind, () => edit(keys, value));
  }

  // Several fields at once, undone at once: `{ pointer: value }`.
  function setAll(values) {
    change("", "set", () => {
      for (const [pointer, value] of Object.entries(values)) current = edit(split(pointer), value);
      return current;
    });
  }

  function rearrange(list, pointer, kind, make) {
    change(pointer, kind, () => {
      const before = read(current, list) || [];
      const after = [...before];
      make(after);
      const changed = edit(list, after);
      return join(list) === "/steps" ? { ...changed, steps: followSteps(before, after) } : changed;
    });
  }

  // “Include results of steps” names steps by number: the numbers follow when steps move, come or go.
  function followSteps(before, after) {
    const places = new Map(after.map((one, index) => [one, index + 1]));
    return after.map((one, index) => {
      if (!Array.isArray(one.include_results)) return one;
      const numbers = one.include_results
        .map((number) => (number > 0 && before[number - 1] ? places.get(before[number - 1]) : number))
        .filter((number) => number !== undefined && number <= index);
      if (numbers.join() === one.include_results.join()) return one;
      const { include_results: _, ...rest } = one;
      return numbers.length ? { ...rest, include_results: numbers } : rest;
    });
  }

  function insert(pointer, value) {
    const keys = split(pointer);
    rearrange(keys.slice(0, -1), pointer, "insert", (list) => list.splice(Number(keys.at(-1)), 0, value));
  }

  function remove(pointer) {
    const keys = split(pointer);
    if (!Array.isArray(read(current, keys.slice(0, -1)))) return set(pointer, undefined);
    rearrange(keys.slice(0, -1), pointer, "remove", (list) => list.splice(Number(keys.at(-1)), 1));
  }

  function move(from, to) {
    const keys = split(from);
    const target = Number(split(to).at(-1));
    if (Number(keys.at(-1)) === target) return;
    rearrange(keys.slice(0, -1), to, "move", (list) => list.splice(target, 0, ...list.splice(Number(keys.at(-1)), 1)));
  }

  function travel(from, to) {
    if (!from.length) return false;
    const then = from.pop();
    to.push({ document: current, step, audit, part });
    current = then.document;
    last = { pointer: null, time: 0 };
    notify("", "undo");
    select(then.step, then.audit, then.part);
    return true;
  }

  function select(wanted, wantedAudit = null, wantedPart = "flow") {
    const steps = listSteps();
    step = Math.max(-1, Math.min(wanted, steps.length - 1));
    const audits = step < 0 ? [] : listAudits(step);
    audit = wantedAudit !== null && wantedAudit < audits.length ? wantedAudit : null;
    part = step < 0 ? wantedPart : "flow";
    document.dispatchEvent(new CustomEvent("toolflow:flow-selected", { detail: { step, audit, part } }));
  }

  const listOf = (value) => (Array.isArray(value) ? value.map((one) => (typeof one === "object" && one ? one : {})) : []);
  const listSteps = () => listOf(current.steps);
  const listAudits = (index) => listOf(read(current, ["steps", index, "audits"]));

  // Where a part is in what is stored: steps and audits are known by their names, however they were moved.
  function findStored(keys) {
    const found = [];
    for (let place = 0; place < keys.length; place += 1) {
      const list = read(data.stored, found);
      const isPart = Array.isArray(list) && ["steps", "audits"].includes(keys[place - 1]);
      if (!isPart) {
        found.push(keys[place]);
        continue;
      }
      const now = listOf(read(current, keys.slice(0, place)));
      const name = read(now, [keys[place], "name"]);
      let index = list.findIndex((one) => one.name === name);
      if (index < 0) {
        const there = list[keys[place]];
        const isTaken = there && now.some((one) => one.name === there.name);
        index = there && !isTaken ? Number(keys[place]) : -1;
      }
      if (index < 0) return null;
      found.push(index);
    }
    return found;
  }

  function isChanged(pointer) {
    const keys = split(pointer);
    const stored = findStored(keys);
    return !stored || JSON.stringify(read(current, keys)) !== JSON.stringify(read(data.stored, stored));
  }

  // One who comes back to a draft, for example from its backtest, is where they were, and can still undo.
  const storage = `toolflow-editor-${data.flow}`;
  function recall() {
    if (!data.draft_saved_at) return null;
    const found = JSON.parse(sessionStorage.getItem(storage));
    if (JSON.stringify(found?.document) !== JSON.stringify(current)) return null;
    past.push(...found.past);
    return found;
  }
  const recalled = recall();
  window.addEventListener("pagehide", () => {
    try {
      sessionStorage.setItem(storage, JSON.stringify({ document: current, step, audit, part, past: past.slice(-MOST_KEPT) }));
    } catch {
      // It is too large to be kept.
    }
  });

  window.ToolFlow.flow = {
    recalled,
    data,
    get document() { return current; },
    get step() { return step; },
    get audit() { return audit; },
    get part() { return part; },
    get steps() { return listSteps(); },
    get canUndo() { return past.length > 0; },
    get: (pointer) => read(current, split(pointer)),
    getStored: (pointer) => {
      const keys = findStored(split(pointer));
      return keys ? read(data.stored, keys) : undefined;
    },
    auditsOf: listAudits,
    set, setAll, insert, remove, move, select, split, isChanged,
    undo: () => travel(past, future),
    redo: () => travel(future, past),
    // All of it at once, as text was read: it can be undone as well.
    replace: (whole) => {
      change("", "undo", () => whole);
      select(step, audit, part);
    },
  };
})();
