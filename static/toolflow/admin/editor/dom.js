"use strict";

// What the editor's scripts share: elements, icons, questions to the server, and a voice for screen readers.

window.ToolFlow = window.ToolFlow || {};

(function () {
  const make = (tag, properties = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
      if (name in element && name !== "list") element[name] = value;
      else element.setAttribute(name, value);
    }
    element.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
    return element;
  };

  // The icons that scripts need are in the page, by name.
  const icon = (name) => {
    const found = document.getElementById("editor-icons").content.querySelector(`.icon-${name}`);
    return found ? found.cloneNode(true) : "";
  };

  const SEVERITY_ICONS = { low: "information-circle", medium: "exclamation-circle", high: "exclamation-triangle", critical: "x-circle" };

  // How severe the issues of an audit are, as a word and its icon; what can't be read counts as not set.
  const readSeverity = ({ severity }) => {
    const word = Object.hasOwn(SEVERITY_ICONS, severity) ? severity : "critical";
    return [word, icon(SEVERITY_ICONS[word])];
  };

  // A copy of a <template> of the page.
  const stamp = (id) => document.getElementById(id).content.firstElementChild.cloneNode(true);

  const fail = (sentence, details) => Object.assign(new Error(sentence), details);

  // After signing in again the user has another token than the page.
  function findToken() {
    const cookie = /(?:^|; )csrftoken=([^;]+)/.exec(document.cookie);
    const field = document.querySelector("#flow-form [name=csrfmiddlewaretoken]");
    return cookie ? cookie[1] : field ? field.value : "";
  }

  // What the server answers, as { status, answer }. An error that comes instead has a sentence for people; `wait` are
  // the seconds until it makes sense to ask again.
  async function send(address, options) {
    let response;
    try {
      response = await fetch(address, { redirect: "manual", cache: "no-store", ...options });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw fail("The server can’t be reached.", { wait: 10 });
    }
    if (response.type === "opaqueredirect") {
      throw fail("You are signed out. Sign in in another tab, then try again here.", { wait: 10 });
    }
    const isJson = (response.headers.get("Content-Type") || "").startsWith("application/json");
    const answer = isJson ? await response.json() : {};
    if (isJson && (response.ok || answer.conflict || (answer.problems && !answer.error))) return { status: response.status, answer };
    const words = { 403: "Your account may not do this.", 413: "The flow is too large to be sent." };
    const sentence = answer.error || words[response.status] || `The server answered with an error (${response.status}).`;
    throw fail(sentence, { wait: Number(response.headers.get("Retry-After")) || (response.status >= 500 ? 10 : 0) });
  }

  // A question as JSON, and its answer.
  async function ask(address, question, options = {}) {
    const posted = question && {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-CSRFToken": findToken() },
      body: JSON.stringify(question),
    };
    return (await send(address, { ...posted, ...options })).answer;
  }

  let speaking = 0;
  function announce(sentence) {
    const said = document.getElementById("editor-said");
    clearTimeout(speaking);
    said.textContent = "";
    // What stays the same would not be said again.
    speaking = setTimeout(() => (said.textContent = sentence), 50);
  }

  // Rows that are dragged to where another is: `grip` is what is held, `row` what moves with it.
  function makeSortable(box, { grip, row, isMate, move }) {
    let dragged = null;
    const clear = () => box.querySelectorAll(".is-target").forEach((one) => one.classList.remove("is-target"));
    const findTarget = (event) => {
      const over = event.target.closest(row);
      return dragged && over && isMate(dragged.dataset, over.dataset) ? over : null;
    };
    box.addEventListener("dragstart", (event) => {
      dragged = event.target.closest?.(grip)?.closest(row) || null;
      if (!dragged) return;
      event.dataTransfer.effectAllowed = "move";
      event.dataTransfer.setDragImage(dragged, 10, 10);
    });
    box.addEventListener("dragover", (event) => {
      clear();
      const target = findTarget(event);
      if (!target) return;
      event.preventDefault();
      target.classList.add("is-target");
    });
    box.addEventListener("drop", (event) => {
      const target = findTarget(event);
      if (!target) return;
      event.preventDefault();
      move(dragged.dataset, target.dataset);
    });
    box.addEventListener("dragend", () => {
      dragged = null;
      clear();
    });
  }

  const plural = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

  Object.assign(window.ToolFlow, { make, icon, stamp, fail, findToken, send, ask, announce, plural, makeSortable, readSeverity });
})();
