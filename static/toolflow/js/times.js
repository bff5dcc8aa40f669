// Sends the time zone of this browser to the server, so that it writes times as the reader's clock shows them. After
// signing in it is known; after a change of the zone, from the next page on.
"use strict";

(() => {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (!/^[\w+\-/]+$/.test(zone || "")) return;
  // Others may lie on the same host: what is below ToolFlow's own path is where this script lies.
  const path = new URL(document.currentScript.src).pathname.replace(/static\/toolflow\/.*$/, "");
  const secure = location.protocol === "https:" ? "; Secure" : "";
  document.cookie = `toolflow_time_zone=${zone}; Path=${path}; Max-Age=31536000; SameSite=Lax${secure}`;
})();
