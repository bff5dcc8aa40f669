// The table of fields in the dialog that makes schemas. Rows without a word in them count as not there.

const NESTING = ["object", "objects"];

const listOf = (row) => row.querySelector(":scope > .maker-inner > .maker-rows");
const partOf = (row, name) => row.querySelector(`:scope > .maker-cells [data-part=${name}]`);
const rowsOf = (list) => [...list.children].filter((row) => !isBlank(row));
const rowAround = (part) => part.closest(".maker-row");

function isBlank(row) {
  const isEmpty = ["name", "description", "choices"].every((name) => !partOf(row, name).value.trim());
  return isEmpty && rowsOf(listOf(row)).length === 0;
}

function readRows(list) {
  return rowsOf(list).map((row) => {
    const type = partOf(row, "type").value;
    const lines = partOf(row, "choices").value.split("\n");
    return {
      name: partOf(row, "name").value,
      type,
      description: partOf(row, "description").value,
      is_required: partOf(row, "is_required").checked,
      is_nullable: partOf(row, "is_nullable").checked,
      choices: type === "choice" ? lines.map((line) => line.trim()).filter(Boolean) : [],
      fields: NESTING.includes(type) ? readRows(listOf(row)) : [],
      ...JSON.parse(row.dataset.further || "{}"),
    };
  });
}

// What the schema says of a field beyond the table stays with it.
function keepFurther(row, kept) {
  row.dataset.further = JSON.stringify(kept);
  const say = (keywords, where) =>
    Object.entries(keywords).map(([name, value]) => `${name}${where} ${JSON.stringify(value)}`);
  const words = [...say(kept.further, ""), ...say(kept.further_of_elements, " of each element")];
  partOf(row, "further").textContent = words.length ? `Kept with it: ${words.join(", ")}` : "";
}

export function makeTable(dialog) {
  const root = dialog.querySelector("[data-maker-root]");
  const template = dialog.querySelector("[data-maker-row]");

  function addRow(list, field) {
    const row = template.content.firstElementChild.cloneNode(true);
    list.append(row);
    let level = 1;
    for (let outer = rowAround(list); outer; outer = rowAround(outer.parentElement)) level += 1;
    if (level >= Number(dialog.dataset.maxLevels)) {
      for (const option of partOf(row, "type").options) option.disabled = NESTING.includes(option.value);
    }
    if (field) {
      for (const name of ["name", "type", "description"]) partOf(row, name).value = field[name];
      for (const name of ["is_required", "is_nullable"]) partOf(row, name).checked = field[name];
      partOf(row, "choices").value = field.choices.join("\n");
      for (const inner of field.fields) addRow(listOf(row), inner);
      keepFurther(row, { further: field.further, further_of_elements: field.further_of_elements });
    }
    row.dataset.type = partOf(row, "type").value;
    return row;
  }

  return {
    read: () => readRows(root),

    show(fields) {
      root.replaceChildren();
      for (const field of fields) addRow(root, field);
      if (!fields.length) addRow(root);
    },

    add(button) {
      partOf(addRow(button.parentElement.querySelector(":scope > .maker-rows")), "name").focus();
    },

    remove(button) {
      const row = rowAround(button);
      const list = row.parentElement;
      const neighbour = row.nextElementSibling || row.previousElementSibling;
      row.remove();
      (neighbour ? partOf(neighbour, "name") : list.parentElement.querySelector(":scope > [data-maker=add]")).focus();
    },

    move(button, isUp) {
      const row = rowAround(button);
      if (isUp && row.previousElementSibling) row.previousElementSibling.before(row);
      if (!isUp && row.nextElementSibling) row.nextElementSibling.after(row);
      button.focus();
    },

    changeType(field) {
      const row = rowAround(field);
      row.dataset.type = field.value;
      // What was said of a text says nothing of a number.
      keepFurther(row, { further: {}, further_of_elements: {} });
      if (NESTING.includes(field.value) && !listOf(row).children.length) addRow(listOf(row));
    },

    // The field that a problem with such a path (“/fields/0/name”) is about.
    mark(path) {
      const parts = path.split("/").slice(1);
      let list = root;
      let row = null;
      while (parts[0] === "fields" && parts.length > 1) {
        row = rowsOf(list)[Number(parts[1])];
        list = listOf(row);
        parts.splice(0, 2);
      }
      const field = row && parts.length === 1 && partOf(row, parts[0]);
      if (field) field.setAttribute("aria-invalid", "true");
    },
  };
}
