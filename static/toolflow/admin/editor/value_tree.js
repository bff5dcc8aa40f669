"use strict";

// Values as a tree to choose paths from: arrows move and unfold, Enter takes a path. All of it is text, never HTML.

// `choose(path)` hears which path was taken.
window.ToolFlow.makeValueTree = ({ label, choose }) => {
  const { make } = window.ToolFlow;
  const DEEPEST = 12;
  const tree = make("ul", { className: "value-tree", role: "tree", "aria-label": label });
  const nodes = new WeakMap(); // row → { node, path, level }

  const rows = () => [...tree.querySelectorAll("[role=treeitem]")];
  const levelOf = (row) => Number(row.dataset.level);
  const isOpen = (row) => row.getAttribute("aria-expanded") === "true";

  function makeRow(node, path, level) {
    const twisty = make("span", { className: node.parts ? "twisty" : "no-twisty", "aria-hidden": "true" });
    const name = make("code", { textContent: node.segment, className: "value-name" });
    const preview = make("span", { textContent: node.preview, className: "value-preview", title: node.preview });
    const row = make("li", { role: "treeitem", "aria-level": level, tabIndex: -1 }, twisty, name, " ", preview);
    row.dataset.level = level;
    if (node.parts) row.setAttribute("aria-expanded", "false");
    nodes.set(row, { node, path, level });
    return row;
  }

  function unfold(row) {
    const { node, path, level } = nodes.get(row);
    if (row.getAttribute("aria-expanded") !== "false" || level > DEEPEST) return;
    row.setAttribute("aria-expanded", "true");
    const parts = node.parts.map((part) => makeRow(part, path + part.segment, level + 1));
    if (node.more) {
      const rest = make("li", { className: "value-rest", role: "none", textContent: `… ${node.more} more` });
      rest.dataset.level = level + 1;
      parts.push(rest);
    }
    row.after(...parts);
  }

  // Everything below a row is what follows it on deeper levels.
  function fold(row) {
    row.setAttribute("aria-expanded", "false");
    while (row.nextElementSibling && levelOf(row.nextElementSibling) > levelOf(row)) row.nextElementSibling.remove();
    if (!tree.querySelector("[tabindex='0']")) row.tabIndex = 0;
  }

  function moveTo(row) {
    if (!row) return;
    const current = tree.querySelector("[tabindex='0']");
    if (current) current.tabIndex = -1;
    row.tabIndex = 0;
    row.focus();
  }

  function findParent(row) {
    let parent = row.previousElementSibling;
    while (parent && levelOf(parent) >= levelOf(row)) parent = parent.previousElementSibling;
    return parent;
  }

  const take = (row) => choose(nodes.get(row).path);
  const keys = {
    ArrowDown: (row, all) => moveTo(all[all.indexOf(row) + 1]),
    ArrowUp: (row, all) => moveTo(all[all.indexOf(row) - 1]),
    Home: (row, all) => moveTo(all[0]),
    End: (row, all) => moveTo(all.at(-1)),
    ArrowRight: (row, all) => (isOpen(row) ? moveTo(all[all.indexOf(row) + 1]) : unfold(row)),
    ArrowLeft: (row) => (isOpen(row) ? fold(row) : moveTo(findParent(row))),
    Enter: take,
    " ": take,
  };

  tree.addEventListener("keydown", (event) => {
    const row = event.target.closest("[role=treeitem]");
    if (!row || !keys[event.key] || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    keys[event.key](row, rows());
  });

  // Where the caret is stays where it is.
  tree.addEventListener("mousedown", (event) => event.preventDefault());
  tree.addEventListener("click", ({ target }) => {
    const row = target.closest("[role=treeitem]");
    if (!row) return;
    if (!target.closest(".twisty")) take(row);
    else if (isOpen(row)) fold(row);
    else unfold(row);
  });

  // `variables` are { name, note, tree }: there is a note where there is no value, or beside it.
  function show(variables) {
    const hadFocus = tree.contains(document.activeElement);
    tree.replaceChildren(
      ...variables.map(({ name, note, tree: node }) => {
        const row = makeRow(node || { segment: name, preview: "" }, name, 1);
        if (note) row.append(" ", make("span", { textContent: note, className: "value-note" }));
        return row;
      }),
    );
    const first = tree.firstElementChild;
    if (!first) return;
    first.tabIndex = 0;
    if (nodes.get(first).node.parts) unfold(first);
    if (hadFocus) first.focus({ preventScroll: true });
  }

  return { element: tree, show };
};

// What a schema says of a value, as such a tree: where the value would be is the word for its type. The parts of a
// part are made when they are opened, since a schema may go on in itself for ever.
window.ToolFlow.outlineSchema = (() => {
  const WORDS = {
    string: "text", integer: "whole number", number: "number", boolean: "true or false", null: "null", object: "object",
    array: "list",
  };
  const MOST_OPTIONS = 30;
  const MOST_KEYS = 60;
  const RESERVED = ["false", "in", "null", "true"];
  const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
  const own = (value, key) => (isObject(value) && Object.hasOwn(value, key) ? value[key] : undefined);

  function followRef(root, ref) {
    const keys = ref.replace(/^#\/?/, "").split("/").filter(Boolean);
    return keys.reduce((value, key) => own(value, key.replaceAll("~1", "/").replaceAll("~0", "~")), root);
  }

  // The schemas that a value may fit, references and choices followed.
  function listOptions(schema, root) {
    const options = [];
    const left = [schema];
    for (let count = 0; left.length && count < MOST_OPTIONS; count += 1) {
      const node = left.shift();
      if (!isObject(node)) continue;
      if (typeof node.$ref === "string") left.push(followRef(root, node.$ref));
      const choices = [node.anyOf, node.oneOf, node.allOf].filter(Array.isArray).flat();
      left.push(...choices);
      if (!choices.length || node.properties) options.push(node);
    }
    return options;
  }

  function listTypes(node) {
    if (node.type !== undefined) return [node.type].flat();
    return isObject(node.properties) ? ["object"] : [];
  }

  function listParts(options, root) {
    const properties = options.flatMap((node) => (isObject(node.properties) ? Object.entries(node.properties) : []));
    const found = new Map(properties.reverse()); // of two with one name the first counts
    const parts = [...found].reverse().map(([key, schema]) => {
      const isName = /^[A-Za-z_][A-Za-z0-9_]*$/.test(key) && !RESERVED.includes(key);
      return outline(isName ? `.${key}` : `[${JSON.stringify(key)}]`, schema, root);
    });
    const list = options.find((node) => isObject(node.items));
    return list ? [...parts, outline("[0]", list.items, root)] : parts;
  }

  // Of a text that can't be read, and of a schema that says nothing, there is no tree: null.
  function outline(segment, schema, root = schema) {
    const options = listOptions(schema, root);
    const words = options.flatMap(listTypes).map((type) => own(WORDS, type)).filter(Boolean);
    let parts = null;
    return {
      segment,
      preview: [...new Set(words)].join(" or "),
      get parts() {
        parts = parts || listParts(options, root);
        return parts.length ? parts.slice(0, MOST_KEYS) : null;
      },
      // What stands for an element of a list, whatever its number.
      get item() {
        const list = options.find((node) => isObject(node.items));
        return list ? outline("[0]", list.items, root) : null;
      },
      get more() {
        return parts ? Math.max(0, parts.length - MOST_KEYS) : 0;
      },
    };
  }

  return (segment, text) => {
    try {
      const schema = JSON.parse(text);
      return isObject(schema) ? outline(segment, schema) : null;
    } catch {
      return null;
    }
  };
})();
