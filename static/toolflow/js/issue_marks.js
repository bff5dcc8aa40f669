// What attempts that have just ended tell of issues of earlier ones: live updates bring it in #issue-marks, and it is
// put in its place where that is on the page. The issues themselves stay as the reader left them.
"use strict";

document.addEventListener("htmx:oobAfterSwap", (event) => {
  if (event.detail.target.id !== "issue-marks") return;
  for (const news of document.querySelectorAll("#issue-marks > [data-marks-of]")) {
    document.getElementById(news.dataset.marksOf)?.replaceChildren(...news.childNodes);
    news.remove();
  }
});
