"use strict";
// New numbers as turns land.  One tab of the browser listens, for all of them: a host has six connections.
(() => {
  const state = document.getElementById("live-state");
  if (!state) return;
  const words = state.querySelector("span");
  const channel = new BroadcastChannel("evaltap-ticks");
  let paused = false;
  let shown = null;
  let heard = Date.now();
  let settling = 0;
  const say = (kind, text) => { state.className = "live " + kind; words.textContent = text; };
  function tick(version) {
    heard = Date.now();
    if (paused) return;
    if (!failed) say("", "live");
    if (version === shown || document.visibilityState !== "visible") return;
    shown = version;
    document.body.dispatchEvent(new CustomEvent("tick"));
    // The server may answer with figures that are up to six seconds old: ask once more when nothing follows.
    clearTimeout(settling);
    settling = setTimeout(() => { if (!paused) document.body.dispatchEvent(new CustomEvent("tick")); }, 6000);
  }
  channel.addEventListener("message", (event) => tick(event.data));
  if (navigator.locks) {
    navigator.locks.request("evaltap-live", () => new Promise(() => {
      const source = new EventSource("/ticks");
      source.addEventListener("message", (event) => {
        channel.postMessage(event.data);
        tick(event.data);
      });
    }));
  }
  setInterval(() => {
    if (paused || failed || Date.now() - heard < 15000) return;
    say("off", "not live: asking every 5 s");
    if (document.visibilityState === "visible") document.body.dispatchEvent(new CustomEvent("tick"));
  }, 5000);
  // A refresh that failed leaves the figures as they are, and is repeated: after 5 s, then 10 s, 20 s, 40 s.
  let failed = 0;
  let retry = 0;
  function again() {
    clearTimeout(retry);
    if (paused) return;
    say("off", "stale, retrying");
    retry = setTimeout(() => { if (!paused) document.body.dispatchEvent(new CustomEvent("tick")); },
      5000 * 2 ** Math.min(failed++, 3));
  }
  document.addEventListener("htmx:response:error", again);
  document.addEventListener("htmx:error", again);
  document.addEventListener("htmx:after:swap", (event) => {
    if (event.detail.ctx?.response?.status >= 400) return;  // nothing was swapped
    clearTimeout(retry);
    if (failed && !paused) say("", "live");
    failed = 0;
  });
  document.addEventListener("visibilitychange", () => { shown = null; });
  // While paused the address says from when to when, so that a link shows the same to others.
  let before = "";
  function hold(on) {
    const charts = document.querySelector(".charts[data-from]");
    const address = new URL(location.href);
    if (on && charts && !address.searchParams.has("from")) {
      before = location.href;
      address.searchParams.delete("range");
      for (const end of ["from", "to"]) address.searchParams.set(end, charts.dataset[end].slice(0, 16));
      history.replaceState(null, "", address);
    } else if (!on && before) {
      history.replaceState(null, "", before);
      before = "";
    }
  }
  document.addEventListener("click", (event) => {
    const button = event.target.closest('[data-action="pause"]');
    if (!button) return;
    paused = !paused;
    shown = null;
    button.setAttribute("aria-pressed", String(paused));
    button.textContent = paused ? "Resume" : "Pause";
    hold(paused);
    if (paused) say("paused", "paused at " + new Date().toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" }));
    else say("", "live");
  });
})();
