"use strict";
// The list of a report's cases: searched, sorted and linked to.  Without this script, the first ones are listed.
(() => {
  const STATUS = ["crashed", "failed", "error", "not_evaluated", "passed"];
  const PAGE = 100;
  const byId = (id) => document.getElementById(id);
  const list = byId("list");
  const entries = [...list.children, ...(byId("rest")?.content.children ?? [])].map((node, place) => {
    const { status, cells, cost, latency } = node.dataset;
    const known = (value) => (value === undefined ? -1 : Number(value));
    return { node, place, status, cells: JSON.parse(cells), cost: known(cost), latency: known(latency), text: null };
  });
  const metrics = [...byId("metric").options].slice(1).map((one) => one.text.toLowerCase());
  let found = entries;
  let shown = 0;
  let group = -1;

  // -- which cases: a cell is [status, score, number of the reason's group], or null --------------
  // Recorded texts have a direction of their own; the words of the page are not searched.
  function textOf(one) {
    if (one.text === null) one.text = [...one.node.querySelectorAll('[dir="auto"]')].map((each) => each.textContent).join("\n").toLowerCase();
    return one.text;
  }
  const has = (one, status) => one.cells.some((cell) => cell && STATUS[cell[0]].startsWith(status) && STATUS[cell[0]] !== "passed");
  function fits(one, word) {
    const [, field, value] = /^(tool|status|metric):(.+)$/.exec(word) || [];
    if (field === "tool") return (one.node.querySelector(".path")?.textContent ?? "").toLowerCase().split(" › ").some((name) => name.includes(value));
    if (field === "status") return one.status.startsWith(value) || has(one, value);
    if (field === "metric") return one.cells.some((cell, place) => cell && metrics[place].includes(value));
    return textOf(one).includes(word);
  }
  function lowest(one, metric) {
    const cells = metric < 0 ? one.cells : [one.cells[metric]];
    return Math.min(Infinity, ...cells.filter((cell) => cell && cell[1] !== null).map((cell) => cell[1]));
  }
  const ascending = (key) => (a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : a.place - b.place);
  const ORDERS = {
    worst: () => (a, b) => a.place - b.place,
    id: () => ascending((one) => one.node.id),
    score: (metric) => ascending((one) => lowest(one, metric)),
    cost: () => ascending((one) => -one.cost),
    latency: () => ascending((one) => -one.latency),
  };
  function choose() {
    const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const status = byId("status").value;
    const metric = byId("metric").selectedIndex - 1;
    found = entries.filter((one) => {
      if (metric >= 0 && !one.cells[metric]) return false;
      if (status && !(metric >= 0 ? STATUS[one.cells[metric][0]] === status : one.status === status || has(one, status))) return false;
      if (group >= 0 && !one.cells.some((cell) => cell && cell[2] === group)) return false;
      return words.every((word) => fits(one, word));
    });
    found.sort(ORDERS[byId("sort").value](metric));
    byId("clear").hidden = found.length === entries.length;
    shown = 0;
    list.replaceChildren();
    draw();
  }
  function draw() {
    list.append(...found.slice(shown, shown + PAGE).map((one) => one.node));
    shown = Math.min(found.length, shown + PAGE);
    const all = entries.length.toLocaleString("en") + (entries.length === 1 ? " case" : " cases");
    byId("count").textContent = found.length === entries.length ? all : found.length.toLocaleString("en") + " of " + all;
    byId("more").hidden = shown >= found.length;
    byId("more").textContent = "Show " + Math.min(PAGE, found.length - shown) + " more";
  }
  function showOnly(words, number) {
    for (const id of ["status", "metric"]) byId(id).value = "";
    byId("search").value = words;
    group = number;
    choose();
    if (number >= 0) byId("cases").scrollIntoView();
  }

  // -- links: #case-…, #reason-…, and into a case -----------------------------------------------
  function follow() {
    let target = "";
    try {
      target = decodeURIComponent(location.hash.slice(1));
    } catch {
      return;
    }
    const reason = /^reason-(\d+)$/.exec(target);
    if (reason) return showOnly("", Number(reason[1]));
    if (!target.startsWith("case-")) return;
    const name = target.slice("case-".length);
    const one = entries.find((each) => each.node.id === target) || entries.find((each) => each.node.querySelector(".id").textContent === name);
    if (!one) return;
    if (!found.includes(one)) showOnly("", -1);
    while (!one.node.isConnected) draw();
    one.node.open = true;
    one.node.scrollIntoView({ block: "start" });
    one.node.querySelector("summary").focus({ preventScroll: true });
  }
  list.addEventListener("click", (event) => {
    const entry = event.target.closest("summary.row")?.parentElement;
    if (entry && entries.length > 1) history.replaceState(null, "", entry.open ? "#cases" : "#" + encodeURIComponent(entry.id));
  });

  let waiting = 0;
  byId("search").addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(choose, 80);
  });
  for (const id of ["status", "metric", "sort"]) byId(id).addEventListener("change", choose);
  byId("more").addEventListener("click", draw);
  byId("clear").addEventListener("click", () => {
    showOnly("", -1);
    history.replaceState(null, "", "#cases");
  });
  addEventListener("hashchange", follow);
  byId("toolbar").hidden = entries.length < 2;
  choose();
  follow();
})();
