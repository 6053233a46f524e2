"use strict";
// The list of cases.  Recorded text goes into text nodes, or comes escaped in templates; the page's policy allows
// nothing else.
(() => {
  const STATUS = ["crashed", "failed", "error", "not_evaluated", "passed"];
  const WORDS = ["crashed", "failed", "error", "not evaluated", "passed"];
  const SIGNS = ["↯", "✕", "!", "–", "✓"];
  const PAGE = 100;

  const byId = (id) => document.getElementById(id);
  const data = JSON.parse(byId("index").textContent);
  const cases = data.cases.map(([set, id, status, cells, cost, latency, opening, tools], place) => ({
    set, id, status, cells, cost, latency, opening, tools, place, text: null,
  }));
  const blocks = new Map();
  let found = cases;
  let drawn = 0;
  let group = -1;

  function el(tag, attributes, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value !== undefined && value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
    }
    for (const child of children.flat()) {
      if (child !== null && child !== undefined && child !== "") node.append(child);
    }
    return node;
  }
  const recorded = (tag, name, text) => el(tag, { class: name, dir: "auto" }, text);
  const number = (value) => (Number.isInteger(value) ? String(value) : String(Math.round(value * 1000) / 1000));
  const money = (usd) => "$" + (usd >= 0.1 || usd === 0 ? usd.toFixed(2) : String(Number(usd.toPrecision(2))));
  function duration(ms) {
    if (ms < 1000) return Math.round(ms) + " ms";
    if (ms < 60000) return (ms / 1000).toFixed(1) + " s";
    return Math.floor(ms / 60000) + " min " + Math.round((ms % 60000) / 1000) + " s";
  }
  function chip(status, text, title) {
    return el("span", { class: "chip " + STATUS[status], title }, el("i", { "aria-hidden": "true" }, SIGNS[status] + " "), text);
  }

  // -- which cases ------------------------------------------------------------------------------

  function textOf(one) {
    if (one.text === null) {
      const reasons = one.cells.map((cell) => (cell ? data.reasons[cell[2]] : ""));
      one.text = [one.set, one.id, one.opening, ...one.tools, ...reasons].join("\n").toLowerCase();
    }
    return one.text;
  }
  // A word of the search: `tool:`, `status:` and `metric:` look into one field, anything else into all text.
  function fits(one, word) {
    const [, field, value] = /^(tool|status|metric):(.+)$/.exec(word) || [];
    if (field === "tool") return one.tools.some((name) => name.toLowerCase().includes(value));
    if (field === "status") return WORDS[one.status].replace(" ", "_").startsWith(value) || one.cells.some((cell) => cell && STATUS[cell[0]].startsWith(value) && STATUS[cell[0]] !== "passed");
    if (field === "metric") return one.cells.some((cell, place) => cell && data.metrics[place].toLowerCase().includes(value));
    return textOf(one).includes(word);
  }
  function lowest(one, metric) {
    const cells = metric < 0 ? one.cells : [one.cells[metric]];
    const scores = cells.filter((cell) => cell && cell[1] !== null).map((cell) => cell[1]);
    return scores.length ? Math.min(...scores) : Infinity;
  }
  const most = (key) => (a, b) => (b[key] ?? -1) - (a[key] ?? -1) || a.place - b.place;
  const ORDERS = {
    worst: () => (a, b) => a.place - b.place,
    id: () => (a, b) => (a.set < b.set ? -1 : a.set > b.set ? 1 : a.id < b.id ? -1 : a.id > b.id ? 1 : 0),
    score: (metric) => (a, b) => {
      const [x, y] = [lowest(a, metric), lowest(b, metric)];
      return x === y ? a.place - b.place : x - y;
    },
    cost: () => most("cost"),
    latency: () => most("latency"),
  };
  function choose() {
    const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const status = STATUS.indexOf(byId("status").value);
    const metric = byId("metric").value === "" ? -1 : Number(byId("metric").value);
    found = cases.filter((one) => {
      if (metric >= 0 && !one.cells[metric]) return false;
      if (status >= 0) {
        const fits = metric >= 0 ? one.cells[metric][0] === status : one.status === status || one.cells.some((cell) => cell && cell[0] === status && STATUS[status] !== "passed");
        if (!fits) return false;
      }
      if (group >= 0 && !one.cells.some((cell) => cell && cell[3] === group)) return false;
      return words.every((word) => fits(one, word));
    });
    byId("clear").hidden = found.length === cases.length;
    found.sort(ORDERS[byId("sort").value](metric));
    byId("list").replaceChildren();
    drawn = 0;
    draw();
  }
  function draw() {
    const rows = document.createDocumentFragment();
    for (const one of found.slice(drawn, drawn + PAGE)) rows.append(row(one));
    byId("list").append(rows);
    drawn = Math.min(found.length, drawn + PAGE);
    const all = cases.length.toLocaleString("en");
    const some = found.length.toLocaleString("en");
    byId("count").textContent = found.length === cases.length ? all + (cases.length === 1 ? " case" : " cases") : some + " of " + all;
    byId("more").hidden = drawn >= found.length;
    byId("more").textContent = "Show " + Math.min(PAGE, found.length - drawn) + " more";
  }

  // -- one case ---------------------------------------------------------------------------------

  function row(one) {
    const many = data.metrics.length > 4;
    const cells = one.cells.map((cell, place) => {
      if (!cell || (many && cell[0] === 3)) return null;
      const [status, score, reason] = cell;
      const text = score === null ? WORDS[status] : number(score);
      const title = data.metrics[place] + ": " + WORDS[status] + (data.reasons[reason] ? ": " + data.reasons[reason] : "");
      return el("span", { class: "cell " + STATUS[status], title },
        el("span", { class: "cell-name" }, data.metrics[place]), el("b", {}, el("i", { "aria-hidden": "true" }, SIGNS[status] + " "), text));
    });
    const worst = one.cells.filter((cell) => cell && cell[2]).sort((a, b) => a[0] - b[0])[0];
    const button = el("button", { type: "button", class: "row", "aria-expanded": "false" },
      chip(one.status, WORDS[one.status]),
      el("span", { class: "ids" }, recorded("span", "set", one.set && one.set !== one.id ? one.set + " / " : ""), recorded("b", "id", one.id)),
      one.opening ? recorded("span", "opening", one.opening) : null,
      el("span", { class: "cells" }, cells),
      el("span", { class: "use" }, [one.latency !== null ? duration(one.latency) : "", one.cost !== null ? money(one.cost) : ""].filter(Boolean).join(" · ")),
      worst ? recorded("span", "why", data.reasons[worst[2]]) : null);
    const holder = el("div", { class: "case", "data-place": String(one.place) }, button);
    button.addEventListener("click", () => toggle(one, holder, button));
    return holder;
  }
  function toggle(one, holder, button) {
    const open = button.getAttribute("aria-expanded") === "true";
    button.setAttribute("aria-expanded", String(!open));
    if (open) holder.lastElementChild.remove();
    else holder.append(details(one));
    if (cases.length > 1) history.replaceState(null, "", open ? "#cases" : linkTo(one));
  }

  // -- links: #case-…, #reason-… -------------------------------------------------------------------

  const nameOf = (one) => (one.set && one.set !== one.id ? one.set + "/" : "") + one.id;
  const linkTo = (one) => "#case-" + encodeURIComponent(nameOf(one));
  function follow() {
    let target = "";
    try {
      target = decodeURIComponent(location.hash);
    } catch {
      return;
    }
    const reason = /^#reason-(\d+)$/.exec(target);
    if (reason) return showOnly("", Number(reason[1]));
    if (!target.startsWith("#case-")) return;
    const name = target.slice("#case-".length);
    const one = cases.find((each) => nameOf(each) === name) || cases.find((each) => each.id === name);
    if (!one) return;
    if (!found.includes(one) || found.indexOf(one) >= 20 * PAGE) showOnly(one.id.toLowerCase(), -1);
    while (drawn <= found.indexOf(one)) draw();
    const button = byId("list").querySelector(`[data-place="${one.place}"] > button`);
    if (button.getAttribute("aria-expanded") === "false") button.click();
    button.scrollIntoView({ block: "start" });
    button.focus({ preventScroll: true });
  }
  function showOnly(words, number) {
    for (const id of ["status", "metric"]) byId(id).value = "";
    byId("search").value = words;
    group = number;
    choose();
    if (number >= 0) byId("cases").scrollIntoView();
  }
  function keys(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    if (event.key === "/") {
      event.preventDefault();
      byId("search").focus();
      return;
    }
    const step = { j: 1, k: -1 }[event.key];
    if (!step) return;
    const rows = [...byId("list").querySelectorAll("button.row")];
    const next = rows[rows.indexOf(document.activeElement) + step] || (step > 0 ? rows[0] : null);
    if (next) next.focus();
  }
  function evidence(place) {
    if (place >= data.shown) return null;
    const block = Math.floor(place / data.perBlock);
    if (!blocks.has(block)) blocks.set(block, JSON.parse(byId("details-" + block).textContent));
    return blocks.get(block)[place % data.perBlock];
  }
  function details(one) {
    const full = evidence(one.place);
    const body = el("div", { class: "details" });
    if (!full) {
      body.append(el("p", { class: "note" }, "The evidence of this case is not in this file; see the notes at the top."));
      return body;
    }
    if (full.app) body.append(el("p", { class: "remark" }, "app ", recorded("b", "", full.app)));
    const order = full.cells.slice().sort((a, b) => STATUS.indexOf(a.status) - STATUS.indexOf(b.status));
    body.append(el("div", { class: "verdicts" }, order.map(verdict)));
    (full.turns || []).forEach((turn, place) => body.append(turnView(turn, place, callsOf(one, place))));
    if (full.note) body.append(recorded("p", "note", full.note));
    return body;
  }
  function verdict(cell) {
    const status = STATUS.indexOf(cell.status);
    const score = cell.score === undefined ? "" : number(cell.score) + " of " + number(cell.threshold ?? 0);
    const parts = [el("div", { class: "verdict-head" }, chip(status, WORDS[status]), recorded("b", "", cell.metric_name), el("span", { class: "score" }, score))];
    const turns = cell.turns || [];
    const told = turns.filter((turn) => turn.reason || turn.status !== "passed");
    if (turns.length > 1 || !cell.reason) {
      if (told.length) parts.push(el("ul", { class: "turn-scores" }, told.map((turn) => el("li", {},
        chip(STATUS.indexOf(turn.status), "turn " + turn.turn + (turn.score === undefined ? "" : ": " + number(turn.score))), " ", recorded("span", "reason", (turn.reason || "").trim())))));
      else if (cell.reason) parts.push(recorded("p", "reason", cell.reason.trim()));
    } else parts.push(recorded("p", "reason", cell.reason.trim()));
    if (cell.votes) parts.push(votes(cell));
    if (cell.calls) parts.push(calls(cell));
    return el("div", { class: "verdict-box " + cell.status + (cell.votes ? " wide" : "") }, parts);
  }
  function table(caption, head, rows) {
    const used = head.map((_, place) => rows.some((row) => row[place] !== ""));
    const kept = (row) => row.filter((_, place) => used[place]);
    return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
      el("table", { class: "votes" }, el("caption", {}, caption),
        el("thead", {}, el("tr", {}, kept(head).map((name) => el("th", { scope: "col" }, name)))),
        el("tbody", {}, rows.map((row) => el("tr", {}, kept(row).map((text) => recorded("td", text.length > 40 ? "reason" : "", text)))))));
  }
  function turnNumbers(cell, rows) {
    const turns = new Map((cell.turns || []).map((turn) => [turn.invocation_id, String(turn.turn)]));
    const many = new Set(rows.map((row) => row.invocation_id)).size > 1;
    return (row) => (many ? turns.get(row.invocation_id) ?? "?" : "");
  }
  function votes(cell) {
    const turnOf = turnNumbers(cell, cell.votes);
    const quoted = (vote) => (vote.evidence ? (vote.evidence_found === true ? "in the trace: " : vote.evidence_found === false ? "NOT in the trace: " : "") + vote.evidence : "");
    const shown = table("votes of the judge", ["turn", "rubric", "sample", "score", "confidence", "reason", "evidence"],
      cell.votes.map((vote) => [turnOf(vote), vote.rubric_id || "all", String(vote.sample), vote.score === undefined ? "no vote" : number(vote.score),
        vote.confidence === undefined ? "" : number(vote.confidence), vote.reason || "", quoted(vote)]));
    const told = cell.votes.length + (cell.votes.length === 1 ? " vote" : " votes");
    return el("details", { class: "calls", open: cell.status !== "passed" }, el("summary", {}, told), shown);
  }
  function calls(cell) {
    const turnOf = turnNumbers(cell, cell.calls);
    const cost = cell.calls.reduce((sum, one) => sum + (one.cost_usd || 0), 0);
    const cached = cell.calls.filter((one) => one.cached).length;
    const told = [cell.calls.length + (cell.calls.length === 1 ? " answer" : " answers"), cached ? cached + " from the cache" : "", cell.calls.some((one) => one.cost_usd !== undefined) ? money(cost) : ""];
    return el("details", { class: "calls" }, el("summary", {}, "judge: " + told.filter(Boolean).join(" · ")),
      table("answers of the judge", ["turn", "sample", "judge", "model", "outcome", "tokens", "cost", "latency", "reason"],
        cell.calls.map((one) => [turnOf(one), one.sample ? String(one.sample) : "before", one.judge, one.model || "", one.status.replace("_", " ") + (one.cached ? ", cached" : ""),
          one.input_tokens === undefined && one.output_tokens === undefined ? "" : (one.input_tokens || 0) + " in, " + (one.output_tokens || 0) + " out",
          one.cost_usd === undefined ? "" : money(one.cost_usd), one.latency_ms === undefined ? "" : duration(one.latency_ms), one.reason || ""])));
  }

  // -- one turn ---------------------------------------------------------------------------------

  function turnView(turn, place, calls) {
    const use = [
      turn.latency_ms !== undefined ? duration(turn.latency_ms) : "",
      turn.cost_usd !== undefined ? money(turn.cost_usd) : "",
      turn.input_tokens !== undefined || turn.output_tokens !== undefined ? (turn.input_tokens || 0) + " tokens in, " + (turn.output_tokens || 0) + " out" : "",
      (turn.models || []).join(", "),
    ].filter(Boolean).join(" · ");
    const trace = turn.trace ? el("a", { class: "remark", href: turn.trace, rel: "noreferrer" }, "trace ↗") : "";
    const parts = [el("h3", {}, "Turn " + (place + 1), el("span", { class: "remark" }, use), trace)];
    const said = (name, text, kind) => (text === undefined ? null : el("div", { class: "said " + kind }, el("span", { class: "who" }, name), recorded("p", "words", text)));
    if (turn.error) parts.push(recorded("p", "note bad", turn.error));
    if (turn.gaps) parts.push(el("p", { class: "note" }, "Not captured: ", turn.gaps.join("; ")));
    parts.push(said("user", turn.user, "user"), calls);
    const answer = turn.answer === undefined ? "(no answer)" : turn.answer;
    parts.push(el("div", { class: turn.expected_answer === undefined ? "answers one" : "answers" },
      said("expected answer", turn.expected_answer, "wanted"),
      said(turn.answer_as_expected ? "answer (the expected one)" : "answer", answer, "answer")));
    return el("section", { class: "turn" }, parts);
  }
  // The server renders the difference; a template holds it until the case is opened.
  function callsOf(one, place) {
    const made = byId("calls-" + one.place + "-" + place);
    return made ? made.content.cloneNode(true) : null;
  }

  // -- beginning --------------------------------------------------------------------------------

  data.metrics.forEach((name, place) => byId("metric").append(el("option", { value: String(place) }, name)));
  if (cases.length > 0) {
    byId("toolbar").hidden = cases.length < 2;
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
    document.addEventListener("keydown", keys);
    draw();
    follow();
    if (cases.length === 1) byId("list").querySelector("button").click();
  }
})();
