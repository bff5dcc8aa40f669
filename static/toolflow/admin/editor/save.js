"use strict";

// Checks and keeps what one types, saves it, and reports what is wrong: at its field, in the outline, and at the bottom.

(function () {
  const { flow, fields, make, icon, ask, send, findToken, announce, plural } = window.ToolFlow;
  if (!flow) return;
  const SETTLED = 500; // milliseconds without a change
  const { data } = flow;
  const form = document.getElementById("flow-form");
  const find = (id) => document.getElementById(id);
  const area = find("flow-text");
  const touched = new Set(); // pointers of fields that were written in

  let timer = 0;
  let asking = null;
  let pending = Promise.resolve(); // the last check that was asked for
  let isKept = true; // whether the server has all that was typed
  let isRefused = false; // whether the server did not take what was typed last
  let isSaving = false;
  let isTried = false; // whether saving was tried: then all that is missing is reported, too
  let isText = false; // “Edit as YAML”
  let shownText = ""; // as the server wrote it
  let problems = [];
  let warnings = [];

  const typed = () => (isText ? area.value : flow.document);
  const question = () => ({ flow: data.flow, base_version: data.base_version, [isText ? "text" : "document"]: typed() });

  // What the user has not reached yet is not reported as missing before saving is tried.
  const isReported = ({ path }) => !path || isTried || touched.has(path) || ![undefined, ""].includes(flow.get(path)) || data.draft_saved_at !== null;

  function showRemarks() {
    if (isText) return showTextProblems();
    const reported = problems.filter(isReported);
    const remarks = [...reported.map((one) => ({ ...one, tone: "wrong" })), ...warnings.map((one) => ({ ...one, tone: "warning" }))];
    fields.showAllRemarks(remarks);
    document.dispatchEvent(new CustomEvent("toolflow:remarks", { detail: remarks }));
    const sum = find("editor-sum");
    if (!sum) return;
    const words = reported.length ? `${plural(reported.length, "problem")} to fix` : warnings.length ? plural(warnings.length, "warning") : "";
    const first = reported[0] || warnings[0];
    const key = `${words} ${first?.path}`;
    if (sum.dataset.key === key) return;
    sum.dataset.key = key;
    if (!words) return sum.replaceChildren();
    const [tone, sign] = reported.length ? ["failed", "exclamation-circle"] : ["medium", "exclamation-triangle"];
    sum.replaceChildren(make("button", { type: "button", className: `link tone-${tone}`, onclick: () => goTo(first.path) }, icon(sign), words));
  }

  function goTo(path) {
    const [first, index, list, at] = flow.split(path);
    if (first === "steps" && index !== undefined) flow.select(Number(index), list === "audits" && at !== undefined ? Number(at) : null);
    else flow.select(-1, null, first === "input_schema" ? "input" : "flow");
    fields.focusField(path);
  }

  const makeNote = (sign, words) => make("p", { className: "message message-warning editor-note", role: "note" }, icon(sign), make("span", { textContent: words }));

  // After the flow's live version, if it has one.
  const showDraft = (words) => (find("editor-draft").textContent = words && data.flow !== null ? `· ${words}` : words);

  function showState({ is_changed: isChanged, others, latest }) {
    showDraft(isChanged ? "draft saved" : "");
    if (find("editor-discard")) find("editor-discard").hidden = !isChanged;
    const names = others.map(({ user }) => user).join(", ");
    const notes = [];
    if (names) notes.push(makeNote("user", `${names} ${others.length === 1 ? "has a draft" : "have drafts"} of this flow. The one who saves last sees both.`));
    if (latest > data.base_version) {
      notes.push(makeNote("exclamation-triangle", `Version ${latest} was saved since you opened the page. Saving shows what differs before anything is overwritten.`));
    }
    const box = find("editor-others");
    if (box.dataset.key === `${names} ${latest}`) return;
    box.dataset.key = `${names} ${latest}`;
    box.replaceChildren(...notes);
  }

  // Asks for the check, which keeps the draft.
  async function check(extra = {}) {
    clearTimeout(timer);
    asking?.abort();
    asking = new AbortController();
    const asked = typed();
    pending = ask(data.urls.check, { ...question(), ...extra }, { signal: asking.signal });
    const answer = await pending;
    // A text that can't be read as a flow is kept nowhere.
    if (asked === typed() && answer.document !== null) isKept = true;
    problems = answer.problems;
    warnings = answer.warnings || [];
    if (answer.others) showState(answer);
    showRemarks();
    return answer;
  }

  async function checkQuietly() {
    if (isSaving) return;
    try {
      await check();
      isRefused = false;
    } catch (error) {
      if (error.name === "AbortError") return;
      isRefused = true;
      showDraft(`draft not kept: ${error.message}`);
      if (error.wait) checkSoon(error.wait * 1000);
    }
  }

  function checkSoon(wait = SETTLED) {
    clearTimeout(timer);
    timer = setTimeout(checkQuietly, wait);
  }

  function noteChange() {
    isKept = false;
    if (find("editor-undo")) find("editor-undo").disabled = !flow.canUndo;
    checkSoon();
  }

  document.addEventListener("toolflow:flow-edited", ({ detail }) => {
    if (detail.kind === "type" || detail.kind === "set") touched.add(detail.pointer);
    noteChange();
  });
  area?.addEventListener("input", noteChange);
  document.addEventListener("toolflow:part-shown", showRemarks);

  // What was typed in the last moment before the page is left is kept as well.
  function keepNow() {
    if (isKept || isSaving || !data.may_change) return;
    const body = JSON.stringify(question());
    const headers = { "Content-Type": "application/json", "X-CSRFToken": findToken() };
    // Browsers take at most 64 KB along. A server that kept no draft a moment ago may not keep this one.
    isKept = new TextEncoder().encode(body).length < 60_000 && !isText && !isRefused;
    fetch(data.urls.check, { method: "POST", headers, body, keepalive: isKept, redirect: "manual" })
      .then((response) => (isKept &&= response.ok))
      .catch(() => (isKept = false));
  }
  document.addEventListener("visibilitychange", () => document.visibilityState === "hidden" && keepNow());
  window.addEventListener("pagehide", keepNow);
  window.addEventListener("beforeunload", (event) => {
    keepNow();
    if (!isKept && !isSaving && data.may_change) event.preventDefault();
  });

  function tellTrouble(sentence) {
    find("editor-problems").replaceChildren(make("div", { className: "problems", role: "alert", textContent: sentence }));
  }

  // What would be typed meanwhile is in no version and no draft.
  function setSaving(isOn) {
    isSaving = isOn;
    form.classList.toggle("is-saving", isOn);
    find("editor").inert = isOn;
    find("editor-text").inert = isOn;
  }

  async function save(submitter) {
    if (isSaving) return;
    const focused = document.activeElement;
    setSaving(true);
    clearTimeout(timer);
    find("editor-problems").replaceChildren();
    // A check that the server answers later would keep a draft of what is saved by then.
    await pending.catch(() => {});
    // The page is left without saving: the draft is what one comes back to.
    if (submitter?.name === "_backtest" && !isKept) await check().catch(() => {});
    const posted = new FormData(form);
    posted.set("csrfmiddlewaretoken", findToken());
    if (submitter?.name) posted.set(submitter.name, submitter.value);
    if (!isText) {
      posted.delete("text");
      posted.set("document", JSON.stringify(flow.document));
    }
    try {
      const body = new URLSearchParams(posted);
      const { answer } = await send(window.location.href, { method: "POST", headers: { Accept: "application/json" }, body });
      if (answer.url) return leave(answer.url);
      setSaving(false);
      find("editor-conflict").innerHTML = answer.conflict || "";
      if (answer.conflict) find("editor-conflict").querySelector(".conflict").focus();
      else refuse(answer.problems);
      // The flow was deleted: saving again creates a new one.
      if (answer.is_gone) form.append(make("input", { type: "hidden", name: "_new", value: "yes" }));
    } catch (error) {
      setSaving(false);
      focused.focus();
      tellTrouble(`Nothing was saved. ${error.message} All that you typed is still here.`);
    }
    if (!isKept) checkSoon();
  }

  // Of a page that is shown again, the address alone changes nothing.
  function leave(url) {
    const target = new URL(url, window.location.href);
    target.hash = flow.step < 0 ? "" : `step-${flow.step + 1}`;
    if (target.pathname !== window.location.pathname) return window.location.assign(target);
    history.replaceState(null, "", target);
    window.location.reload();
  }

  // As the parts are on the page: the flow, its input, and each step with its audits.
  function placeOf({ path }) {
    const [first, index, list, at] = flow.split(path);
    if (first !== "steps") return first === "input_schema" ? 1 : 0;
    return 100 * (Number(index) + 1) + (list === "audits" ? 1 + (Number(at) || 0) : 0);
  }

  function refuse(reported) {
    isTried = true;
    problems = isText ? reported : reported.sort((one, other) => placeOf(one) - placeOf(other));
    showRemarks();
    announce(`Not saved: ${plural(reported.length, "problem")} to fix.`);
    if (isText) return;
    const unplaced = reported.filter(({ path }) => ["", "/note", "/steps"].includes(path));
    if (unplaced.length) tellTrouble(unplaced.map(({ message }) => message).join(" "));
    if (reported[0].path === "/note") find("flow-note").focus();
    else goTo(reported[0].path);
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    save(event.submitter);
  });
  // Back from where a save led to.
  window.addEventListener("pageshow", (event) => event.persisted && setSaving(false));

  function undo() {
    if (flow.undo()) announce("Undone.");
    find("editor-undo").disabled = !flow.canUndo;
  }
  find("editor-undo")?.addEventListener("click", undo);
  find("editor-discard")?.addEventListener("click", () => {
    // What is shown now is the latest version, which the draft may not have been made of.
    data.base_version = data.latest;
    form.elements.base_version.value = data.latest;
    flow.replace(data.stored);
    announce("Your draft was discarded. Undo brings it back.");
  });

  document.addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.altKey || !data.may_change) return;
    const key = event.key.toLowerCase();
    // In a field the browser takes back what was typed there.
    const isOurs = key === "s" || (["z", "y"].includes(key) && !event.target.matches("textarea, input[type=text], input[type=search]"));
    if (!isOurs) return;
    event.preventDefault();
    if (key === "s") save(form.querySelector("[name=_save]"));
    else if (key === "y" || event.shiftKey) flow.redo();
    else undo();
  });

  // “Edit as YAML”: the same document as the text of a flow file. The server turns one into the other.
  const mode = find("editor-mode");

  function showTextProblems() {
    const rows = problems.map(({ place, line, message }) => {
      const words = `${place}: ${message}`;
      return make("li", {}, line ? make("button", { type: "button", className: "link", textContent: words, onclick: () => goToLine(line) }) : words);
    });
    const title = make("h2", { textContent: `${plural(problems.length, "problem")} to fix` });
    find("editor-problems").replaceChildren(...(rows.length ? [make("div", { className: "problems" }, title, make("ul", {}, ...rows))] : []));
  }

  function goToLine(line) {
    const lines = area.value.split("\n");
    const start = lines.slice(0, line - 1).reduce((sum, text) => sum + text.length + 1, 0);
    area.focus();
    area.setSelectionRange(start, start + (lines[line - 1] || "").length);
    area.scrollTop = Math.max(0, (line - 3) * parseFloat(getComputedStyle(area).lineHeight));
  }

  function showMode(wanted) {
    isText = wanted;
    find("editor-text").hidden = !isText;
    find("editor").hidden = isText;
    find("editor-problems").replaceChildren();
    mode.querySelector("span").textContent = isText ? "Edit step by step" : "Edit as YAML";
    document.body.classList.toggle("is-text", isText);
  }

  async function switchMode() {
    const wanted = !isText;
    if (data.may_change && wanted) {
      shownText = (await check({ as_text: true })).text;
      area.value = shownText;
    } else if (data.may_change && area.value !== shownText) {
      // Back only with a text that can be read: what is wrong in it besides is reported at its fields.
      const { document: read } = await check();
      if (!read) return area.focus();
      isText = false;
      flow.replace(read);
    }
    showMode(wanted);
    const target = wanted ? area || find("editor-text").querySelector("pre") : find("editor-part");
    target.focus();
    if (wanted && area) goToLine(1);
    if (data.may_change) checkQuietly();
  }

  mode.hidden = false;
  mode.addEventListener("click", () => switchMode().catch((error) => tellTrouble(error.message)));

  // The menu closes when something in it or beside it is chosen.
  const menu = document.querySelector(".editor-menu");
  document.addEventListener("click", ({ target }) => {
    if (!target.closest(".editor-menu > summary")) menu.open = false;
  });
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    menu.open = false;
    menu.querySelector("summary").focus();
  });

  document.body.classList.add("is-editing");
  find("editor").hidden = false;
  find("editor-text").hidden = true;
  if (find("editor-undo")) Object.assign(find("editor-undo"), { hidden: false, disabled: !flow.canUndo });
  if (find("editor-discard")) find("editor-discard").hidden = data.draft_saved_at === null;
  const wanted = /^#step-(\d+)$/.exec(window.location.hash);
  if (wanted) flow.select(Number(wanted[1]) - 1);
  else if (flow.recalled) flow.select(flow.recalled.step, flow.recalled.audit, flow.recalled.part);
  else flow.select(data.flow && flow.steps.length ? 0 : -1);
  if (data.draft_saved_at !== null && data.may_change) checkQuietly();
})();
