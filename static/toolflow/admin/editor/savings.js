"use strict";

// What other limits of the step would have saved, beside their fields: asked once for each step, when they are seen.

(function () {
  const { flow, ask } = window.ToolFlow;
  if (!flow || !flow.data.may_change || flow.data.flow === null) return;
  const known = new Map(); // sentences by field, by the stored name of the step

  function nameStep() {
    const base = `/steps/${flow.step}`;
    return flow.step < 0 || flow.get(`${base}/compute`) !== undefined ? undefined : flow.getStored(`${base}/name`);
  }

  async function show() {
    const name = nameStep();
    if (typeof name !== "string") return;
    if (!known.has(name)) known.set(name, ask(flow.data.urls.savings, { flow: flow.data.flow, step: name }).catch(() => known.delete(name) && {}));
    const sentences = await known.get(name);
    if (name !== nameStep()) return;
    for (const place of document.querySelectorAll("#editor-part [data-saving]")) {
      place.textContent = sentences[place.dataset.saving] || "";
      place.hidden = !place.textContent;
    }
  }

  const seeing = new IntersectionObserver((entries) => entries.some(({ isIntersecting }) => isIntersecting) && show());
  function watch() {
    seeing.disconnect();
    const section = document.querySelector("#editor-part [aria-labelledby=ask-not]");
    if (section) seeing.observe(section);
  }
  document.addEventListener("toolflow:part-shown", watch);
  watch();
})();
