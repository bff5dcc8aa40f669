// Keeps counting how long something takes, and how long ago something was, between what the server says of it.
"use strict";

(() => {
  const LONGER = [[86_400, "d"], [3_600, "h"], [60, "min"]];

  function formatAge(seconds) {
    for (const [unit, name] of LONGER) {
      if (seconds >= unit) return `${Math.floor(seconds / unit)} ${name} ago`;
    }
    return seconds >= 10 ? `${Math.floor(seconds / 10) * 10} s ago` : "under 10 s ago";
  }

  function formatLength(seconds) {
    const two = (count) => String(Math.floor(count)).padStart(2, "0");
    if (seconds < 60) return `${Math.floor(seconds)} s`;
    if (seconds < 3_600) return `${Math.floor(seconds / 60)} min ${two(seconds % 60)} s`;
    if (seconds < 86_400) return `${Math.floor(seconds / 3_600)} h ${two((seconds % 3_600) / 60)} min`;
    return `${Math.floor(seconds / 86_400)} d ${two((seconds % 86_400) / 3_600)} h`;
  }

  function tick() {
    const now = Date.now();
    for (const time of document.querySelectorAll("time[data-tick]")) {
      const seconds = Math.max((now - Date.parse(time.dateTime)) / 1_000, 0);
      const text = time.dataset.tick === "age" ? formatAge(seconds) : formatLength(seconds);
      if (time.textContent !== text) time.textContent = text;
    }
  }

  setInterval(tick, 1_000);
  tick();
})();
