// The views of an output: a view is exchanged in its place, and the browser remembers it. Without this script the
// links load the page with the other view.
"use strict";

(() => {
  const YEAR = 31_536_000;
  let asked = 0;

  document.addEventListener("click", async (event) => {
    const link = event.target.closest("a[data-output-view]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const { outputView } = link.dataset;
    document.cookie = `toolflow_view=${outputView}; path=/; max-age=${YEAR}; samesite=lax`;
    const id = link.closest(".output").id;
    event.preventDefault();
    const number = (asked += 1);
    // Another view was chosen meanwhile, or another output is shown.
    const isLate = () => number !== asked || !document.getElementById(id);
    try {
      const answer = await fetch(link.href, { headers: { Accept: "text/html" } });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (isLate()) return;
      document.getElementById(id).replaceWith(document.adoptNode(page.getElementById(id)));
    } catch {
      if (!isLate()) location.assign(link.href);
      return;
    }
    // What is folded into a page has an address of its own, which is not that of the page.
    if (link.pathname === location.pathname) history.replaceState(history.state, "", link.href);
    document.dispatchEvent(new CustomEvent("toolflow:output", { detail: { id } }));
    document.querySelector(`#${CSS.escape(id)} [data-output-view="${outputView}"]`).focus({ preventScroll: true });
  });
})();
