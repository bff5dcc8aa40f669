"use strict";

// Model, effort, tier and temperature by choosing: prices are beside them, and what a family of models refuses is
// greyed with its reason. What is there already stays, whatever the model takes.

(function () {
  const { flow, fields, ask, make } = window.ToolFlow;
  if (!flow) return;
  const SETTLED = 300; // milliseconds without a key
  const facts = new Map(); // name of a model → promise of what is known of it
  let language = null;
  let timer = 0;

  // What there is to write a flow with; asked for once.
  function learn() {
    language = language || ask(flow.data.urls.language).catch((error) => { language = null; throw error; });
    return language;
  }

  const learnModel = (name) => {
    if (!facts.has(name)) {
      const asked = ask(`${flow.data.urls.language}?${new URLSearchParams({ model: name })}`);
      facts.set(name, asked.catch((error) => { facts.delete(name); throw error; }));
    }
    return facts.get(name);
  };

  async function listModels() {
    const list = document.getElementById("known-models");
    if (list.children.length) return;
    const { models } = await learn();
    const named = flow.data.providers.map((name) => ({ name: `${name}:`, price: "a provider of this installation" }));
    list.replaceChildren(...[...models, ...named].map(({ name, price }) => make("option", { value: name, label: price ? `${name}, ${price}` : name })));
  }

  const find = (name) => document.querySelector(`#editor-part [data-field="${name}"]`);
  const valueOf = (name) => (flow.step < 0 ? undefined : flow.get(`/steps/${flow.step}/${name}`)) ?? flow.get(`/${name}`);

  async function show() {
    const box = find("model");
    if (!box || box.hidden) return;
    const name = valueOf("model") || flow.data.default_model;
    fields.controlOf(box).placeholder = flow.step < 0 ? flow.data.default_model : flow.get("/model") || flow.data.default_model;
    if (typeof name !== "string" || !name) return;
    let known;
    try {
      known = await learnModel(name);
    } catch {
      return;
    }
    if (find("model") !== box || (valueOf("model") || flow.data.default_model) !== name) return;
    grey("reasoning_effort", (value) => known.efforts[value]);
    const said = document.querySelector("#editor-part [data-model-said]");
    const tier = valueOf("service_tier") || "";
    const price = known.tiers[tier] ?? known.tiers[""];
    const words = [price ? `${name}: ${price} per million tokens.` : `The price of ${name} is not known.`, known.note];
    said.textContent = words.filter(Boolean).join(" ");
    for (const option of listOptions("service_tier")) {
      option.dataset.word = option.dataset.word || option.textContent;
      const cost = option.value && known.tiers[option.value];
      option.textContent = cost && cost !== known.tiers[""] ? `${option.dataset.word}, ${cost}` : option.dataset.word;
    }
    const effort = valueOf("reasoning_effort");
    const isRefused = known.temperature && !(known.temperature.includes("only") && effort === "none");
    const temperature = find("temperature");
    temperature.querySelector(".help").textContent = isRefused ? known.temperature : "0 to 2.";
    fields.controlOf(temperature).disabled = Boolean(isRefused) && flow.get(temperature.dataset.pointer) === undefined;
  }

  const listOptions = (name) => [...find(name).querySelectorAll("option")];

  function grey(name, findReason) {
    for (const option of listOptions(name)) {
      option.dataset.word = option.dataset.word || option.textContent;
      const reason = option.value && findReason(option.value);
      option.textContent = reason ? `${option.dataset.word} – ${reason}` : option.dataset.word;
      option.disabled = Boolean(reason) && !option.selected;
    }
  }

  document.addEventListener("focusin", ({ target }) => {
    if (target.matches?.("#editor-part [data-kind=model] input")) listModels().catch(() => {});
  });
  document.addEventListener("toolflow:part-shown", show);
  document.addEventListener("toolflow:flow-edited", ({ detail }) => {
    if (!/\/(model|reasoning_effort|service_tier)$/.test(detail.pointer)) return;
    clearTimeout(timer);
    timer = setTimeout(show, SETTLED);
  });

  window.ToolFlow.learn = learn;
})();
