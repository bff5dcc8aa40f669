// “Try it” of the API reference: asks in the name of whoever is signed in, and shows the answer.
"use strict";

(() => {
  const LONGEST = 200_000;

  function buildAddress(form) {
    let path = form.dataset.path;
    const query = new URLSearchParams();
    for (const field of form.querySelectorAll("[data-place]")) {
      if (field.dataset.place === "path") path = path.replace(`{${field.name}}`, encodeURIComponent(field.value));
      else if (field.dataset.place === "query" && field.value !== "") query.append(field.name, field.value);
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

  function buildRequest(form) {
    const method = form.dataset.method;
    const headers = { Accept: "application/json" };
    for (const field of form.querySelectorAll("[data-place=header]")) {
      if (field.value.trim() !== "") headers[field.name] = field.value.trim();
    }
    if (method === "GET") return { method, headers };
    headers["X-CSRFToken"] = document.querySelector("#api-csrf input").value;
    const body = form.querySelector("[data-place=body]")?.value ?? "";
    if (body.trim() === "") return { method, headers };
    headers["Content-Type"] = "application/json";
    return { method, headers, body };
  }

  async function ask(form) {
    const given = form.querySelector(".given");
    const [line, body] = given.children;
    const address = buildAddress(form);
    const asked = `${form.dataset.method} ${address}`;
    given.hidden = false;
    line.textContent = `${asked} …`;
    try {
      const answer = await fetch(address, buildRequest(form));
      body.textContent = format(await answer.text());
      line.textContent = `${asked}: ${answer.status} ${answer.statusText}`;
    } catch (error) {
      body.textContent = "";
      // What a header can’t hold is found here, too.
      line.textContent = `${asked} could not be sent: ${error.message}`;
    }
    body.hidden = body.textContent === "";
  }

  for (const form of document.querySelectorAll("form.try")) {
    form.hidden = false;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const button = form.querySelector("button[type=submit]");
      // Nothing is made twice by a second click; a disabled button would lose the focus.
      if (button.getAttribute("aria-disabled") === "true") return;
      button.setAttribute("aria-disabled", "true");
      ask(form).finally(() => button.removeAttribute("aria-disabled"));
    });
  }
})();
