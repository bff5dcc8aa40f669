// The page of a run: a click in the outline, on a tab or on a link to another attempt swaps the pane and the address.
// Without this script the same links lead to whole pages.
"use strict";

(() => {
  const run = document.getElementById("run");
  const base = run.dataset.run;
  // A reader who has done something is not taken along when a run goes on.
  let isFollowing = true;
  for (const name of ["pointerdown", "keydown", "wheel", "touchmove"]) {
    document.addEventListener(name, () => (isFollowing = false), { passive: true });
  }

  const readHidden = () => new Set(run.dataset.hide.split(" ").filter(Boolean));

  // Old addresses name an attempt, an issue or a line of one page: #s2a1, #s2a1-i3, #s2a1-l4.
  function translate(hash) {
    const found = /^#s(\d+)a(\d+)(?:-(?:(i\d+)|(l\d+)))?$/.exec(hash);
    if (!found) return null;
    const [, step, number, issue, line] = found;
    const place = issue ? `#${issue}` : line ? `#s${step}a${number}-${line}` : "";
    return new URL(`${base}steps/${step}/attempts/${number}/${place}`, location.href);
  }

  function findEntry(link) {
    if (!link || link.target || link.hasAttribute("download") || link.dataset.outputView) return null;
    const url = new URL(link.href, location.href);
    if (url.origin !== location.origin || url.searchParams.has("download")) return null;
    const isHere = url.pathname === location.pathname && url.search === location.search;
    if (isHere && url.hash) return document.getElementById(url.hash.slice(1))?.closest("#pane") ? null : translate(url.hash);
    const rest = url.pathname.startsWith(base) ? url.pathname.slice(base.length) : null;
    const isAttempt = rest !== null && /^steps\/\d+\/attempts\/\d+\/$/.test(rest);
    return isAttempt || (rest === "" && url.searchParams.get("show") === "result") ? url : null;
  }

  function showCurrent() {
    const entry = document.getElementById("pane").dataset.entry;
    for (const link of document.querySelectorAll(".outline a[data-entry]")) {
      if (link.id === entry) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
    document.querySelector(".outline a[aria-current]")?.scrollIntoView({ block: "nearest" });
    const picker = document.getElementById("picker");
    if (picker) picker.open = false;
  }

  // Only going there makes it the target that styles speak of.
  function goTo(hash) {
    if (!hash) return;
    location.replace(hash);
    const target = document.getElementById(hash.slice(1));
    reveal(target);
    if (!target) findFurther(hash);
  }

  // Of an attempt with very many issues most are on further pages: its own page knows where.
  function findFurther(hash) {
    const position = /^#i(\d+)$/.exec(hash)?.[1];
    const further = document.querySelector("#pane .issue-pages a");
    if (position && further) location.replace(new URL(`?issue=${position}`, further.href));
  }

  function reveal(target) {
    const severity = target?.closest(".issue")?.dataset.severity;
    const hidden = readHidden();
    if (severity && hidden.delete(severity)) hideOnly(hidden);
    for (let part = target?.closest("details"); part; part = part.parentElement.closest("details")) part.open = true;
    target?.scrollIntoView({ block: "nearest" });
    if (target?.matches(".issue")) target.focus({ preventScroll: true });
  }

  let asked = 0;
  let loading = null;
  // Without its hash: to go to another place of the same pane loads nothing.
  let lastAddress = location.href.split("#")[0];
  async function select(url, { isPushed = true, focus = "" } = {}) {
    const number = (asked += 1);
    const hidden = readHidden();
    if (hidden.size) url.searchParams.set("hide", [...hidden].join(","));
    const address = url.pathname + url.search;
    const top = document.getElementById("pane").getBoundingClientRect().top;
    // One at a time, and of several that wait the last.
    await loading;
    if (number !== asked) return;
    loading = htmx.ajax("GET", address, { source: "#pane", target: "#pane", swap: "outerHTML show:none" }).catch(() => {});
    await loading;
    if (number !== asked) return;
    // What could not be loaded says why on a page of its own.
    if (document.getElementById("pane").dataset.url.split("?")[0] !== url.pathname) {
      location.assign(url);
      return;
    }
    if (isPushed) history.pushState({ workbench: true }, "", address);
    lastAddress = location.href.split("#")[0];
    showCurrent();
    if (top < 0) document.getElementById("pane").scrollIntoView({ block: "start" });
    if (focus) document.getElementById(focus)?.focus({ preventScroll: true });
    goTo(url.hash);
  }
  document.addEventListener("toolflow:output", () => (lastAddress = location.href.split("#")[0]));
  window.selectEntry = (link) => select(new URL(link.href), { focus: link.id });

  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    const link = event.target.closest("a[href]");
    if (!link?.closest("#run, #run-head")) return;
    const url = findEntry(link);
    if (!url) return;
    event.preventDefault();
    const isKept = link.closest(".outline") || link.id;
    select(url, { focus: isKept ? link.id : "" });
  });

  window.addEventListener("popstate", (event) => {
    const url = new URL(location.href);
    if (url.href.split("#")[0] === lastAddress) return;
    if (event.state?.workbench || url.pathname.startsWith(base)) select(url, { isPushed: false });
  });

  window.addEventListener("hashchange", () => {
    const target = document.getElementById(location.hash.slice(1));
    if (target?.closest("#pane")) reveal(target);
    else {
      const url = translate(location.hash);
      // What is not on the page of its own attempt is nowhere.
      if (url && url.pathname !== location.pathname) select(url);
    }
  });
  // A second click on the same link changes no address.
  document.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#"]');
    if (link && link.hash === location.hash) reveal(document.getElementById(link.hash.slice(1)));
  });

  // Requests for updates name what the reader sees.
  document.addEventListener("htmx:configRequest", (event) => {
    if (event.detail.elt.id !== "live" || isFollowing) return;
    event.detail.path = event.detail.path.replace("&follow", "");
  });

  // The severity filter: its state is in data-hide, which live updates leave alone, and in the address.
  function hideOnly(hidden) {
    run.dataset.hide = [...hidden].join(" ");
    const url = new URL(location.href);
    if (hidden.size) url.searchParams.set("hide", [...hidden].join(","));
    else url.searchParams.delete("hide");
    history.replaceState(history.state, "", url);
    lastAddress = location.href.split("#")[0];
    showHidden();
  }

  function showHidden() {
    const hidden = readHidden();
    for (const button of run.querySelectorAll("button[data-hides]")) {
      const name = button.dataset.hides;
      // For severities pressed means shown, for clean attempts it means hidden: as their words say.
      button.setAttribute("aria-pressed", String(hidden.has(name) === (name === "clean")));
      const after = new Set(hidden);
      if (!after.delete(name)) after.add(name);
      button.value = [...after].join(",");
    }
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-hides]");
    if (!button) return;
    event.preventDefault();
    const hidden = readHidden();
    if (!hidden.delete(button.dataset.hides)) hidden.add(button.dataset.hides);
    hideOnly(hidden);
  });

  // What attempts that have just ended say of issues of earlier ones comes in #issue-marks, and is put in its place.
  document.addEventListener("htmx:oobAfterSwap", (event) => {
    if (event.detail.target.id !== "issue-marks") {
      showHidden();
      return;
    }
    for (const marks of document.querySelectorAll("#issue-marks > [data-marks-of]")) {
      document.getElementById(marks.dataset.marksOf)?.replaceChildren(...marks.childNodes);
      marks.remove();
    }
  });

  const old = document.getElementById(location.hash.slice(1))?.closest("#pane") ? null : translate(location.hash);
  if (old) {
    history.replaceState(history.state, "", base);
    select(old);
  } else if (location.hash) {
    const target = document.getElementById(location.hash.slice(1));
    if (target) reveal(target);
    else findFurther(location.hash);
  }
})();
