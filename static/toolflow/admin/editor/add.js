"use strict";

// Adds cards anywhere: empty ones, and copies of steps with all their audits. nested_admin makes the form; here it gets
// its place and what it says.

(() => {
  const { cards } = window.ToolFlow;
  const NOT_COPIED = ["position", "id", "flow", "step", "DELETE"];
  const MOST_BEYOND = 10; // As many more forms than may be saved are taken; deleted ones are among them.

  // While nested_admin makes a form: fills it, before anybody is told of it.
  let fill = null;

  const count = (group, name) => Number(document.getElementById(`id_${group.id.slice(0, -6)}-${name}_FORMS`).value);

  const hasRoom = (group) => {
    const most = count(group, "MAX_NUM");
    if (cards.listKept(group).length < most && count(group, "TOTAL") < most + MOST_BEYOND) return true;
    cards.announce(
      group === cards.stepsGroup()
        ? `No step was added: a flow has at most ${most} steps.`
        : `No audit was added: a step has at most ${most} audits.`,
    );
    return false;
  };

  // The page has one template for audits; nested_admin wants one in each step.
  const provideTemplate = (group, formset) => {
    const prefix = group.id.slice(0, -6);
    if (document.getElementById(`${prefix}-empty`)) return;
    const holder = document.createElement("template");
    const original = document.getElementById("steps-empty-audits-empty");
    holder.innerHTML = original.outerHTML.replaceAll("steps-empty-audits", prefix);
    const template = holder.content.firstElementChild;
    group.querySelector(":scope > .djn-items").append(template);
    formset._$template = window.django.jQuery(template);
  };

  // A new card behind `after`, or at the end.
  const add = (group, after = null, filler = null) => {
    const formset = window.django.jQuery(group).djangoFormset();
    provideTemplate(group, formset);
    fill = filler;
    const card = formset.add(after ? cards.list(group).indexOf(after) + 1 : undefined)[0];
    fill = null;
    return card;
  };

  const copyFields = (source, target) => {
    const prefix = `${source.id}-`;
    const targetPrefix = target.id.replace(/empty$/, "__prefix__-");
    for (const field of source.querySelectorAll(`[name^="${prefix}"]`)) {
      const kind = field.name.slice(prefix.length);
      if (kind.includes("-") || NOT_COPIED.includes(kind)) continue;
      const copy = target.querySelector(`[name="${targetPrefix}${kind}"]`);
      copy.value = field.value;
      copy.checked = field.checked;
    }
  };

  // The first of “Extract copy”, “Extract copy 2” … that nobody has.
  const findFree = (text, taken, separator, most) => {
    for (let number = 1; ; number += 1) {
      const ending = `${separator}copy${number > 1 ? separator + number : ""}`;
      const candidate = text.slice(0, most - ending.length) + ending;
      if (!taken.includes(candidate)) return candidate;
    }
  };

  const nameCopy = (card, kind, separator, most) => {
    const field = cards.fieldOf(card, kind);
    const others = cards.list(cards.groupOf(card)).filter((other) => other !== card);
    if (!field.value) return;
    field.value = findFree(
      field.value,
      others.map((other) => cards.fieldOf(other, kind).value),
      separator,
      most,
    );
  };

  const finish = (card) => {
    for (const fold of card.querySelectorAll(".tf-fold")) cards.countFilled(fold);
    if (cards.isStep(card)) {
      card.querySelector(".step-fold").open = true;
      cards.refresh(cards.auditsOf(card));
    }
  };

  const placeOf = (card) => {
    const kept = cards.listKept(cards.groupOf(card));
    return `at place ${kept.indexOf(card) + 1} of ${kept.length}`;
  };

  const focus = (card) => {
    const name = cards.fieldOf(card, "name");
    name.focus();
    name.select();
  };

  const addEmpty = (group, after) => {
    if (!hasRoom(group)) return;
    const card = add(group, after);
    finish(card);
    cards.settle(group, `${cards.isStep(card) ? "A step" : "An audit"} was added ${placeOf(card)}.`);
    focus(card);
  };

  const duplicate = (card) => {
    const group = cards.groupOf(card);
    if (!hasRoom(group)) return;
    const copy = add(group, card, (target) => copyFields(card, target));
    nameCopy(copy, "name", " ", 100);
    let audits = [];
    if (cards.isStep(card)) {
      nameCopy(copy, "tool_name", "_", 64);
      audits = cards.listKept(cards.auditsOf(card));
      for (const audit of audits) finish(add(cards.auditsOf(copy), null, (target) => copyFields(audit, target)));
    }
    finish(copy);
    const withAudits = audits.length ? ` with ${cards.plural(audits.length, "audit")}` : "";
    cards.settle(group, `${cards.describe(card)} was duplicated${withAudits}: the copy is ${placeOf(copy)}.`);
    focus(copy);
  };

  document.addEventListener("DOMContentLoaded", () => {
    window.django.jQuery(document).on("djnesting:beforeadded", (event, group, form) => {
      if (fill) fill(form[0]);
    });
  });

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-tool]");
    if (!button) return;
    const card = button.closest(".djn-inline-form");
    if (button.dataset.tool === "add") addEmpty(button.closest(".djn-group"), null);
    else if (button.dataset.tool === "insert") addEmpty(cards.groupOf(card), card);
    else if (button.dataset.tool === "copy") duplicate(card);
  });
})();
