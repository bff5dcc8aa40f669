// Tells the server the time zone of this browser, so that it writes times as the reader's clock shows them. Whoever
// signs in has told it by then; in a new zone the next page is right.
"use strict";

(() => {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (!/^[\w+\-/]+$/.test(zone || "")) return;
  const secure = location.protocol === "https:" ? "; Secure" : "";
  document.cookie = `toolflow_time_zone=${zone}; Path=/; Max-Age=31536000; SameSite=Lax${secure}`;
})();
