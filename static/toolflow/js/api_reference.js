// “Try it” of the API reference: reads what an address gives, in the name of whoever is signed in.
"use strict";

(() => {
  const LONGEST = 200_000;

  function buildAddress(form) {
    let path = form.dataset.path;
    const query = new URLSearchParams();
    for (const field of form.querySelectorAll("[data-place]")) {
      if (field.dataset.place === "path") path = path.replace(`{${field.name}}`, encodeURIComponent(field.value));
      else if (field.value !== "") query.append(field.name, field.value);
    }
    return query.size ? `${path}?${query}` : path;
  }

  function format(text) {
    try {
      text = JSON.stringify(JSON.parse(text), null, 2);
    } catch {
      // What is no JSON is shown as it is.
    }
    return text.length > LONGEST ? `${text.slice(0, LONGEST)}\n… and ${text.length - LONGEST} characters more` : text;
  }

  async function ask(form) {
    const given = form.querySelector(".given");
    const [line, body] = given.children;
    const address = buildAddress(form);
    given.hidden = false;
    line.textContent = `GET ${address} …`;
    try {
      const answer = await fetch(address, { headers: { Accept: "application/json" } });
      body.textContent = format(await answer.text());
      line.textContent = `GET ${address}: ${answer.status} ${answer.statusText}`;
    } catch {
      body.textContent = "";
      line.textContent = `GET ${address}: the server can’t be reached.`;
    }
    body.hidden = body.textContent === "";
  }

  for (const form of document.querySelectorAll("form.try")) {
    form.hidden = false;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      ask(form);
    });
  }
})();
