"use strict";
// Keys: each clicks the control that is marked with its action, or moves through what is shown.
(() => {
  const byId = (id) => document.getElementById(id);
  const control = (action) => (action ? document.querySelector(`main [data-action="${action}"]:not([hidden])`) || document.querySelector(`[data-action="${action}"]:not([hidden])`) : null);
  for (const one of document.querySelectorAll("[data-action][hidden]")) one.hidden = false;
  const dialog = byId("keys");
  if (!dialog) return;
  const actions = new Map();
  for (const row of dialog.querySelectorAll("[data-keys]")) {
    const keys = row.dataset.keys;
    actions.set(keys, [...(actions.get(keys) || []), row.dataset.does]);
  }
  const on = byId("keys-on");
  try {
    on.checked = localStorage.getItem("evaltap-keys") !== "off";
    on.addEventListener("change", () => localStorage.setItem("evaltap-keys", on.checked ? "on" : "off"));
  } catch {
    // A file in a sandbox has no storage.
  }
  let before = "";
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && event.target.type !== "checkbox";
    if (typing) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (!on.checked && event.key !== "Escape") return;
    if (dialog.open) return;
    const pair = before + " " + event.key;
    before = event.key;
    setTimeout(() => { before = ""; }, 1000);
    for (const does of actions.get(pair) || actions.get(event.key) || []) {
      if (act(does)) {
        event.preventDefault();
        return;
      }
    }
  });
  function act(does) {
    const own = { keys: openKeys, "next-row": () => row(1), "previous-row": () => row(-1), "next-difference": () => jump("[data-difference]", 1),
      "previous-difference": () => jump("[data-difference]", -1), "next-turn": () => jump("[data-turn]", 1), "previous-turn": () => jump("[data-turn]", -1), "pick-row": pickRow, fold }[does];
    if (own) return own();
    const found = control(does);
    if (!found) return false;
    if (/^(INPUT|TEXTAREA)$/.test(found.tagName)) {
      const closed = found.closest("details");
      if (closed) closed.open = true;
      found.focus();
      found.select();
    } else found.click();
    return true;
  }
  function openKeys() {
    dialog.showModal();
    return true;
  }
  function step(selector, by) {
    const all = [...document.querySelectorAll(selector)].filter((one) => one.checkVisibility());
    const at = all.findIndex((one) => one === document.activeElement || one.contains(document.activeElement));
    return all[at < 0 ? (by > 0 ? 0 : all.length - 1) : at + by];
  }
  function row(by) {
    const found = step("[data-row]", by);
    if (found) found.focus();
    return Boolean(found);
  }
  function pickRow() {
    const box = document.activeElement.closest(".row")?.querySelector(".row-pick");
    if (box) box.click();
    return Boolean(box);
  }
  function jump(selector, by) {
    const found = step(selector, by);
    if (!found) return false;
    found.focus({ preventScroll: true });
    found.scrollIntoView({ block: selector.includes("turn") ? "start" : "center", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
    return true;
  }
  function fold() {
    const all = [...document.querySelectorAll("details.equal, details.result")];
    const open = all.some((one) => !one.open);
    for (const one of all) one.open = open;
    return all.length > 0;
  }
  document.addEventListener("click", (event) => {
    if (event.target.closest('[data-action="keys"]')) openKeys();
  });
})();
