"use strict";

// Before the page is sent: would it arrive? A session that ended would take all that was typed along, and so would a
// page with more fields than the server reads.

(() => {
  let isAsking = false;
  let isAllowed = false;

  function tell(form, sentence) {
    let line = form.querySelector(".send-problem");
    if (!line) {
      line = document.createElement("p");
      line.className = "send-problem";
      line.setAttribute("role", "alert");
      form.querySelector(".submit-row").prepend(line);
    }
    line.textContent = sentence;
    line.hidden = !sentence;
  }

  async function findObstacle(form) {
    const most = Number(form.dataset.mostFields);
    const count = [...new FormData(form).keys()].length;
    if (count > most) {
      return `Nothing was sent: the page has ${count.toLocaleString("en")} fields, and the server reads at most ` +
        `${most.toLocaleString("en")}. Delete some audits, or split the flow.`;
    }
    let answer;
    try {
      answer = await fetch(form.dataset.feedbackUrl, { redirect: "manual", cache: "no-store" });
    } catch {
      return "Nothing was sent: the server can’t be reached. All that you typed is still here; try again.";
    }
    if (answer.type === "opaqueredirect") {
      return "Nothing was sent: you are signed out. Sign in in another tab, then save here again.";
    }
    if (answer.status === 403) return "Nothing was sent: your account may not change flows any more.";
    return "";
  }

  // Whoever signed in again meanwhile has another token.
  function renewToken(form) {
    const cookie = /(?:^|; )csrftoken=([^;]+)/.exec(document.cookie);
    if (cookie) form.elements.csrfmiddlewaretoken.value = cookie[1];
  }

  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if (form.id !== "flow_form" || isAllowed) return;
    event.preventDefault();
    if (isAsking) return;
    isAsking = true;
    tell(form, "");
    const obstacle = await findObstacle(form);
    isAsking = false;
    if (obstacle) return tell(form, obstacle);
    renewToken(form);
    isAllowed = true;
    form.requestSubmit(event.submitter);
    isAllowed = false;
  }, true);
})();
