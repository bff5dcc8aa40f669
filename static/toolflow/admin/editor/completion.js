"use strict";

// Names while one types: after “output.” what the schema of the output has, and so on for all variables. A list below
// the field, which arrows and Enter choose from; Ctrl+Space opens it anywhere.

(function () {
  const { flow, fields, make, learn } = window.ToolFlow;
  if (!flow) return;
  const MOST = 12;
  const NAME = "[A-Za-z_]\\w*";
  const PATH = new RegExp(`(${NAME}(?:\\.${NAME}|\\[\\d+\\]|\\["[^"\\]]*"\\])*)(\\.|\\[)(${NAME}|\\d+)?$`);
  const ROOT = new RegExp(`(?:${NAME})?$`);
  let list = null; // the listbox, while it is open
  let control = null;
  let start = 0; // where the name that is typed begins
  let language = null;

  const bare = (segment) => segment.replace(/^\./, "");

  // What a path leads to, as an outline of a schema; null where nothing is known.
  window.ToolFlow.followPath = (outlines, path) => {
    const [root, ...segments] = path.match(/^[A-Za-z_]\w*|\.[A-Za-z_]\w*|\[(?:\d+|"[^"\]]*")\]/g) || [""];
    return segments.reduce((node, segment) => {
      if (!node) return null;
      const found = (node.parts || []).find((part) => part.segment === segment);
      return found || (/^\[\d+\]$/.test(segment) ? node.item || null : null);
    }, outlines[root] || null);
  };

  // Names that an expression gives to elements: of “output.risks.all(r, r.” the “r”.
  function addOwnNames(outlines, before) {
    const own = new RegExp(`([A-Za-z_][\\w.\\[\\]]*)\\.(?:all|exists|exists_one|filter|map)\\(\\s*(${NAME})\\s*,`, "g");
    for (const [, path, name] of before.matchAll(own)) {
      const found = window.ToolFlow.followPath(outlines, path);
      if (found?.item) outlines[name] = found.item;
    }
    return outlines;
  }

  // What may be typed at the caret: { start, options }.
  function find(field, before, isAsked) {
    const isText = field.dataset.completes !== "expression";
    const open = isText ? /\{([^{}]*)$/.exec(before) : null;
    if (isText && !open) return null;
    const text = isText ? open[1] : before;
    // Without a dot it is the beginning of a variable.
    const [, path, sign, part] = PATH.exec(text) || [];
    const typed = path ? part || "" : ROOT.exec(text)[0];
    const outlines = addOwnNames(window.ToolFlow.outlineVariables(field), before);
    let options;
    if (path) {
      const node = window.ToolFlow.followPath(outlines, path);
      options = (node?.parts || []).filter(({ segment }) => segment.startsWith(sign)).map((part) => ({ word: sign === "." ? bare(part.segment) : part.segment.slice(1), note: part.preview }));
    } else {
      if (!typed && !isText && !isAsked) return null;
      const roots = field.dataset.completes === "prompt" ? ["input", "steps", "previous"] : window.ToolFlow.listVariables(language, field);
      const names = [...new Set([...roots, ...Object.keys(outlines).filter((name) => !(name in language.variables))])];
      options = names.map((name) => ({ word: name, note: language.variables[name] || outlines[name]?.preview || "" }));
    }
    const fitting = options.filter(({ word }) => word.toLowerCase().startsWith(typed.toLowerCase()) && (word !== typed || isAsked));
    return fitting.length ? { start: before.length - typed.length, options: fitting.slice(0, MOST) } : null;
  }

  function close() {
    if (!list) return;
    list.remove();
    list = null;
    control.removeAttribute("aria-controls");
    control.removeAttribute("aria-activedescendant");
  }

  function show(options) {
    close();
    list = make("ul", { className: "completions", id: "completions", role: "listbox", "aria-label": "Names" });
    options.forEach(({ word, note }, index) => {
      const option = make("li", { id: `completion-${index}`, role: "option" }, make("code", { textContent: word }), make("span", { className: "quiet", textContent: note }));
      option.dataset.word = word;
      list.append(option);
    });
    control.after(list);
    control.setAttribute("aria-autocomplete", "list");
    control.setAttribute("aria-controls", list.id);
    list.scrollIntoView({ block: "nearest" });
    mark(0);
  }

  const listOptions = () => [...list.children];
  const findMarked = () => listOptions().findIndex((option) => option.getAttribute("aria-selected") === "true");

  function mark(index) {
    const options = listOptions();
    const at = (index + options.length) % options.length;
    options.forEach((option, place) => option.setAttribute("aria-selected", String(place === at)));
    control.setAttribute("aria-activedescendant", options[at].id);
    options[at].scrollIntoView({ block: "nearest" });
  }

  function take(word) {
    const isInText = control.closest("[data-pointer]").dataset.completes !== "expression";
    const end = control.selectionStart;
    close();
    fields.replaceText(control, start, end, word);
    // A path that ends here closes its brace.
    if (isInText && control.value[control.selectionStart] !== "}") {
      const caret = control.selectionStart;
      fields.replaceText(control, caret, caret, "}");
      control.setSelectionRange(caret, caret);
    }
  }

  async function suggest(target, isAsked = false) {
    const field = target.closest("[data-completes]");
    language = language || (await learn().catch(() => null));
    if (!language || document.activeElement !== target || target.readOnly) return;
    const found = find(field, target.value.slice(0, target.selectionStart), isAsked);
    control = target;
    if (!found || target.selectionStart !== target.selectionEnd) return close();
    start = found.start;
    show(found.options);
  }

  const isOurs = (target) => target.matches?.("#editor-part [data-completes] > textarea");

  document.addEventListener("input", (event) => {
    if (!isOurs(event.target)) return;
    const typed = event.data ?? "";
    if (event.inputType === "insertText" && /[\w.[{]/.test(typed)) suggest(event.target);
    else if (list && event.inputType?.startsWith("delete")) suggest(event.target);
    else if (list) close();
  });

  document.addEventListener("keydown", (event) => {
    if (!isOurs(event.target)) return;
    if (event.key === " " && event.ctrlKey) {
      event.preventDefault();
      suggest(event.target, true);
      return;
    }
    if (!list || event.altKey || event.ctrlKey || event.metaKey) return;
    const act = {
      ArrowDown: () => mark(findMarked() + 1),
      ArrowUp: () => mark(findMarked() - 1),
      Enter: () => take(listOptions()[findMarked()].dataset.word),
      Tab: () => take(listOptions()[findMarked()].dataset.word),
      Escape: close,
    }[event.key];
    if (["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key)) close();
    if (!act || (event.key === "Tab" && event.shiftKey)) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }, true);

  document.addEventListener("mousedown", (event) => {
    const option = event.target.closest?.("#completions [role=option]");
    if (!option) return;
    event.preventDefault();
    take(option.dataset.word);
  });
  document.addEventListener("focusout", ({ target }) => {
    if (target === control) close();
  });
})();
