"use strict";

// Values as a tree to choose paths from: arrows move and unfold, Enter takes a path. All of it is text, never HTML.

window.ToolFlow = window.ToolFlow || {};

// `choose(path)` hears which path was taken.
window.ToolFlow.makeValueTree = ({ label, choose }) => {
  const DEEPEST = 12;
  const tree = document.createElement("ul");
  tree.className = "value-tree";
  tree.setAttribute("role", "tree");
  tree.setAttribute("aria-label", label);
  const nodes = new WeakMap(); // row → { node, path, level }

  const rows = () => [...tree.querySelectorAll("[role=treeitem]")];
  const levelOf = (row) => Number(row.dataset.level);

  function makeRow(node, path, level) {
    const row = document.createElement("li");
    row.setAttribute("role", "treeitem");
    row.setAttribute("aria-level", level);
    row.dataset.level = level;
    row.tabIndex = -1;
    const name = Object.assign(document.createElement("code"), { textContent: node.segment, className: "value-name" });
    const preview = Object.assign(document.createElement("span"), { textContent: node.preview, className: "value-preview" });
    preview.title = node.preview;
    row.append(makeTwisty(node), name, " ", preview);
    if (node.parts) row.setAttribute("aria-expanded", "false");
    nodes.set(row, { node, path, level });
    return row;
  }

  function makeTwisty(node) {
    const twisty = document.createElement("span");
    twisty.className = node.parts ? "twisty" : "no-twisty";
    twisty.setAttribute("aria-hidden", "true");
    return twisty;
  }

  function makeNote(words, level) {
    const note = document.createElement("li");
    note.className = "value-rest";
    note.setAttribute("role", "none");
    note.dataset.level = level;
    note.textContent = words;
    return note;
  }

  // Everything below a row is what follows it on deeper levels.
  function listBelow(row) {
    const below = [];
    for (let next = row.nextElementSibling; next && levelOf(next) > levelOf(row); next = next.nextElementSibling) {
      below.push(next);
    }
    return below;
  }

  function unfold(row) {
    const { node, path, level } = nodes.get(row);
    if (row.getAttribute("aria-expanded") !== "false" || level > DEEPEST) return;
    row.setAttribute("aria-expanded", "true");
    const parts = node.parts.map((part) => makeRow(part, path + part.segment, level + 1));
    if (node.more) parts.push(makeNote(`… ${node.more} more`, level + 1));
    row.after(...parts);
  }

  function fold(row) {
    row.setAttribute("aria-expanded", "false");
    listBelow(row).forEach((below) => below.remove());
    if (!tree.querySelector("[tabindex='0']")) row.tabIndex = 0;
  }

  const toggle = (row) => (row.getAttribute("aria-expanded") === "true" ? fold(row) : unfold(row));

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

  const keys = {
    ArrowDown: (row, all) => moveTo(all[all.indexOf(row) + 1]),
    ArrowUp: (row, all) => moveTo(all[all.indexOf(row) - 1]),
    Home: (row, all) => moveTo(all[0]),
    End: (row, all) => moveTo(all[all.length - 1]),
    ArrowRight: (row, all) =>
      row.getAttribute("aria-expanded") === "true" ? moveTo(all[all.indexOf(row) + 1]) : unfold(row),
    ArrowLeft: (row) => (row.getAttribute("aria-expanded") === "true" ? fold(row) : moveTo(findParent(row))),
    Enter: (row) => choose(nodes.get(row).path),
    " ": (row) => choose(nodes.get(row).path),
  };

  tree.addEventListener("keydown", (event) => {
    const row = event.target.closest("[role=treeitem]");
    if (!row || !keys[event.key] || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    keys[event.key](row, rows());
  });

  // Where the caret is stays where it is.
  tree.addEventListener("mousedown", (event) => event.preventDefault());
  tree.addEventListener("click", (event) => {
    const row = event.target.closest("[role=treeitem]");
    if (!row) return;
    if (event.target.closest(".twisty")) toggle(row);
    else choose(nodes.get(row).path);
  });

  // `variables` are { name, note, tree }: a note stands where there is no value, or beside it.
  function show(variables) {
    tree.replaceChildren();
    for (const { name, note, tree: node } of variables) {
      const row = makeRow(node || { segment: name, preview: "" }, name, 1);
      if (note) {
        row.append(" ", Object.assign(document.createElement("span"), { textContent: note, className: "value-note" }));
      }
      tree.append(row);
    }
    const first = tree.firstElementChild;
    if (!first) return;
    first.tabIndex = 0;
    if (nodes.get(first).node.parts) unfold(first);
  }

  return { element: tree, show };
};

// What a schema says of a value, as such a tree: where the value would stand is the word for its type. The parts of a
// part are made when they are looked at, since a schema may go on in itself for ever.
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
