"use strict";

// The fields of the part that is shown: each stands for one place in the document, is filled from it, and writes to it.

(function () {
  const { flow, make, icon } = window.ToolFlow;
  if (!flow) return;

  const controlOf = (field) => field.querySelector("input, textarea, select");
  const show = (value) => (value === undefined || value === null ? "" : typeof value === "string" ? value : JSON.stringify(value));
  // Browsers end lines with LF here; nothing but spaces is nothing.
  const readText = (field) => (controlOf(field).value.trim() ? controlOf(field).value : undefined);
  const text = { fill: (field, value) => (controlOf(field).value = show(value)), read: readText };

  // What was typed is kept as it is where it is not a number: the check says so, and nothing is lost.
  const number = {
    ...text,
    fill: (field, value) => (controlOf(field).value = show(value === undefined ? field.dataset.default : value)),
    read(field) {
      const typed = controlOf(field).value.trim();
      if (typed === "" || typed === field.dataset.default) return undefined;
      const value = Number(typed);
      return /^-?\d*\.?\d+$/.test(typed) && Number.isFinite(value) && Math.abs(value) < 2 ** 53 ? value : typed;
    },
  };

  const choice = {
    fill(field, value) {
      const wanted = value === undefined ? field.dataset.default || "" : String(value);
      for (const radio of field.querySelectorAll("input")) radio.checked = radio.value === wanted;
    },
    read(field) {
      const chosen = field.querySelector("input:checked");
      if (!chosen || chosen.value === (field.dataset.default || "")) return undefined;
      return { true: true, false: false }[chosen.value] ?? chosen.value;
    },
  };

  const press = (field, name, value) => {
    for (const button of field.querySelectorAll("button")) button.setAttribute("aria-pressed", button.dataset[name] === value);
  };

  // How each kind is shown and read; other scripts add theirs.
  const kinds = {
    line: text,
    text,
    code: text,
    model: text,
    select: {
      ...text,
      fill(field, value) {
        const select = controlOf(field);
        select.querySelector("[data-unknown]")?.remove();
        select.value = show(value);
        // What can't be chosen and yet is there must not be lost.
        if (select.value !== show(value)) {
          select.append(make("option", { textContent: show(value), value: show(value), "data-unknown": "" }));
          select.value = show(value);
        }
      },
    },
    number,
    choice,
    lines: {
      fill: (field, value) => (controlOf(field).value = Array.isArray(value) ? value.map(show).join("\n") : show(value)),
      read: (field) => controlOf(field).value.split("\n").map((line) => line.trim()).filter(Boolean),
    },
    local: { fill: (field, value) => press(field, "local", value === undefined ? "no" : "yes") },
    blocks: { fill: (field, value) => press(field, "blocks", value === "never" ? "no" : "yes") },
    steps: {
      fill(field, value, pointer) {
        const own = Number(flow.split(pointer)[1]);
        const chosen = Array.isArray(value) ? value : [];
        const known = flow.steps.slice(0, own).map((step, index) => [index + 1, step.name || "no name yet"]);
        const odd = chosen.filter((one) => !known.some(([index]) => index === one)).map((one) => [one, "no step before this one"]);
        field.querySelector(".checks").replaceChildren(
          ...[...known, ...odd].map(([index, name], place) => {
            const box = make("input", { type: "checkbox", value: String(index), checked: chosen.includes(index) });
            box.id = `f${pointer.replaceAll("/", "-")}-${place}`;
            return make("label", { htmlFor: box.id }, box, make("span", {}, `${index} `, make("bdi", { textContent: name })));
          }),
        );
        field.hidden = field.hidden || ![...known, ...odd].length;
      },
      read(field) {
        const chosen = [...field.querySelectorAll("input:checked")].map((box) => Number(box.value));
        // In the order in which they were chosen before.
        const before = flow.get(field.dataset.pointer) || [];
        return [...before.filter((one) => chosen.includes(one)), ...chosen.filter((one) => !before.includes(one))];
      },
    },
  };

  function fill(field) {
    const { pointer, kind } = field.dataset;
    kinds[kind].fill(field, flow.get(pointer), pointer);
  }

  // Ties the fields below `root` to the part of the document at `base`.
  function bind(root, base) {
    const isLocal = flow.get(`${base}/compute`) !== undefined;
    for (const part of root.querySelectorAll("[data-of]")) {
      const isMeant = (part.dataset.of === "local") === isLocal;
      const isSet = part.dataset.field && flow.get(`${base}/${part.dataset.field}`) !== undefined;
      part.hidden = !isMeant && !isSet;
    }
    for (const field of root.querySelectorAll("[data-field]")) {
      const pointer = `${base}/${field.dataset.field}`;
      field.dataset.pointer = pointer;
      const id = `f${pointer.replaceAll("/", "-")}-${field.dataset.kind}`;
      field.querySelectorAll("input[type=radio]").forEach((radio) => (radio.name = id));
      const control = controlOf(field);
      if (control && control.type !== "radio") {
        control.id = id;
        const label = field.querySelector("label:not([for])");
        if (label) label.htmlFor = id;
      }
      const help = field.querySelector(":scope > .help");
      if (help) {
        help.id = `${id}-help`;
        (control && control.type !== "radio" ? control : field).setAttribute("aria-describedby", help.id);
      }
      fill(field);
      if (!flow.data.may_change) lock(field);
    }
    root.querySelectorAll("[data-more]").forEach(foldRare);
  }

  function lock(field) {
    for (const control of field.querySelectorAll("input, textarea, select, button:not([data-look])")) {
      if (control.matches("textarea, input[type=text]")) control.readOnly = true;
      else control.disabled = true;
    }
  }

  // What is shown elsewhere as well: by the switch of an audit, and in the head of a step.
  const isShown = (name, value) => value === undefined || name === "tool_name" || (name === "fail_at" && value === "never");

  // Rare settings are folded; those that are set are always before the fold.
  function foldRare(fold) {
    for (const field of fold.querySelectorAll("[data-rare]")) {
      if (!isShown(field.dataset.field, flow.get(field.dataset.pointer))) fold.before(field);
    }
    const left = [...fold.querySelectorAll("[data-rare]:not([hidden])")];
    const names = left.map((field) => field.querySelector("label, legend").textContent);
    fold.querySelector("summary span").textContent = names.join(", ");
    fold.hidden = !left.length;
  }

  function write({ target }) {
    const field = target.closest("#editor-part [data-pointer]");
    if (!field || !kinds[field.dataset.kind].read || target.closest("[data-not-field]")) return;
    flow.set(field.dataset.pointer, kinds[field.dataset.kind].read(field), "type");
  }

  document.addEventListener("input", write);

  // Enter in a field with one line sends no form here, and makes no line.
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && event.target.matches("#editor-part input[type=text]")) event.preventDefault();
  });

  // The field at a pointer, or the one that holds what the pointer leads to.
  function findField(pointer) {
    const fields = [...document.querySelectorAll("#editor-part [data-pointer]:not(.ef-switch)")].filter(
      ({ dataset }) => pointer === dataset.pointer || pointer.startsWith(`${dataset.pointer}/`),
    );
    const shown = fields.filter((field) => !field.hidden);
    return (shown.length ? shown : fields).sort((a, b) => b.dataset.pointer.length - a.dataset.pointer.length)[0] || null;
  }

  function showRemarks(field, remarks) {
    const before = field.querySelector(":scope > .remarks");
    const key = JSON.stringify(remarks);
    if (before?.dataset.key === key) return;
    before?.remove();
    const list = make("ul", { className: "remarks", id: `f${field.dataset.pointer.replaceAll("/", "-")}-remarks` });
    list.dataset.key = key;
    for (const { tone, message } of remarks) {
      const sign = icon(tone === "wrong" ? "exclamation-circle" : "exclamation-triangle");
      list.append(make("li", { className: tone }, sign, make("span", { textContent: message })));
    }
    if (remarks.length) field.append(list);
    const control = controlOf(field);
    if (!control || control.type === "radio" || (!remarks.length && !before)) return;
    control.setAttribute("aria-invalid", String(remarks.some(({ tone }) => tone === "wrong")));
    const ids = [field.querySelector(":scope > .help")?.id, remarks.length && list.id].filter(Boolean);
    control.setAttribute("aria-describedby", ids.join(" "));
  }

  // `remarks` are { path, message, tone }; those of a part as a whole are at its head.
  function showAllRemarks(remarks) {
    const byField = new Map();
    const rest = { step: [], audits: [] };
    for (const remark of remarks) {
      const field = findField(remark.path);
      if (field) byField.set(field, [...(byField.get(field) || []), remark]);
      else if (/^\/steps\/\d+\/audits$/.test(remark.path)) rest.audits.push(remark);
      else rest.step.push(remark);
    }
    for (const field of document.querySelectorAll("#editor-part [data-pointer]:not(.ef-switch)")) {
      showRemarks(field, byField.get(field) || []);
    }
    for (const line of document.querySelectorAll("#editor-part [data-problem-of]")) {
      const own = rest[line.dataset.problemOf].filter(({ path }) => flow.step >= 0 && `${path}/`.startsWith(`/steps/${flow.step}/`));
      line.hidden = !own.length;
      line.textContent = own.map(({ message }) => message).join(" ");
    }
  }

  // Goes to the field of a pointer in the part that is shown.
  function focusField(pointer) {
    const field = findField(pointer);
    if (!field) return document.getElementById("editor-part").focus();
    field.dispatchEvent(new CustomEvent("toolflow:reveal", { bubbles: true }));
    for (let fold = field.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    const controls = [...field.querySelectorAll("input, textarea, select"), ...field.querySelectorAll("button")];
    const control = controls.find((one) => one.offsetParent !== null && one.tabIndex >= 0);
    if (control) control.focus();
    field.scrollIntoView({ block: "nearest" });
  }

  // As if it had been typed: the browser can undo it, and all listeners are called.
  function replaceText(control, start, end, typed) {
    control.focus({ preventScroll: true });
    control.setSelectionRange(start, end);
    if (document.execCommand("insertText", false, typed)) return;
    control.setRangeText(typed, start, end, "end");
    control.dispatchEvent(new Event("input", { bubbles: true }));
  }

  Object.assign(window.ToolFlow, { fields: { kinds, bind, fill, findField, focusField, showAllRemarks, controlOf, replaceText } });
})();
