// Tells the server the time zone of this browser, so that it writes times as the reader's clock shows them. Whoever
// signs in has told it by then; in a new zone the next page is right.
"use strict";

(() => {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (!/^[\w+\-/]+$/.test(zone || "")) return;
  // Others may lie on the same host: what is below ToolFlow's own path is where this script lies.
  const path = new URL(document.currentScript.src).pathname.replace(/static\/toolflow\/.*$/, "");
  const secure = location.protocol === "https:" ? "; Secure" : "";
  document.cookie = `toolflow_time_zone=${zone}; Path=${path}; Max-Age=31536000; SameSite=Lax${secure}`;
})();
