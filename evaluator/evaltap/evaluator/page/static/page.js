"use strict";
// The login's code, menus, copying a link, charts, picking rows.
(() => {
  const byId = (id) => document.getElementById(id);
  const say = (text) => { byId("said").textContent = text; };

  const current = document.querySelector(".bar nav [aria-current]");
  if (current) current.parentElement.scrollLeft = current.offsetLeft - current.parentElement.offsetLeft - 40;

  // -- logging in: the code is in the fragment, which no server and no log sees ------------------
  const login = byId("login");
  if (login && location.hash.length > 1) {
    byId("code").value = decodeURIComponent(location.hash.slice(1));
    history.replaceState(null, "", location.pathname + location.search);
    login.requestSubmit();
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-action]");
    if (!button) {
      for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
      return;
    }
    if (button.dataset.action === "copy-link") {
      navigator.clipboard.writeText(new URL(button.dataset.link, location.href).href).then(() => {
        say("The link is copied.");
        const words = button.textContent;
        button.textContent = "Copied";
        setTimeout(() => { button.textContent = words; }, 1500);
      }, () => say("The browser does not let the link be copied."));
    }
  });
  // -- the figures under the pointer stand beside the chart's name; its table has them for everybody ----
  let chart = null;
  function unread() {
    if (!chart) return;
    const shown = chart.querySelector("[data-readout]");
    shown.replaceChildren(...shown.was);
    chart.querySelector(".hair")?.remove();
    chart = null;
  }
  document.addEventListener("pointermove", (event) => {
    const svg = event.target.closest?.(".charts .plot svg");
    const figure = svg?.closest("figure");
    if (figure !== chart) unread();
    if (!figure) return;
    const { left, width } = svg.getBoundingClientRect();
    const buckets = Number(figure.dataset.buckets);
    const place = Math.min(buckets - 1, Math.max(0, Math.floor(((event.clientX - left) / width) * buckets)));
    const row = figure.querySelector(`[data-place="${place}"]`);
    if (!row) return unread();
    const shown = figure.querySelector("[data-readout]");
    if (!chart) shown.was = [...shown.childNodes];
    chart = figure;
    const heads = [...figure.querySelectorAll("thead th")].map((one) => one.textContent);
    shown.textContent = [...row.cells].map((one, at) => (at ? `${heads[at]} ${one.textContent}` : one.textContent)).join(" · ");
    const hair = svg.querySelector(".hair") || svg.appendChild(document.createElementNS(svg.namespaceURI, "path"));
    hair.setAttribute("class", "hair");
    hair.setAttribute("d", `M${((place + 0.5) * 640) / buckets} 0V120`);
  });
  document.documentElement.addEventListener("pointerleave", unread);
  // -- dragging over a chart chooses a span of time ------------------------------------------------
  document.addEventListener("pointerdown", (event) => {
    const svg = event.button === 0 && event.pointerType !== "touch" ? event.target.closest(".charts .plot svg") : null;
    if (!svg) return;
    event.preventDefault();
    const { left, width } = svg.getBoundingClientRect();
    const share = (x) => Math.min(1, Math.max(0, (x - left) / width));
    const from = share(event.clientX);
    const shade = svg.appendChild(document.createElementNS(svg.namespaceURI, "rect"));
    shade.setAttribute("class", "dragged");
    shade.setAttribute("height", 120);
    let to = from;
    const move = (moved) => {
      to = share(moved.clientX);
      shade.setAttribute("x", 640 * Math.min(from, to));
      shade.setAttribute("width", 640 * Math.abs(to - from));
    };
    addEventListener("pointermove", move);
    addEventListener("pointerup", () => {
      removeEventListener("pointermove", move);
      shade.remove();
      if (Math.abs(to - from) < 0.01) return;
      const { from: start, to: end } = svg.closest(".charts").dataset;
      const [first, last] = [Date.parse(start + "Z"), Date.parse(end + "Z")];
      const at = (place) => new Date(first + place * (last - first)).toISOString().slice(0, 16);
      const address = new URL(location.href);
      address.searchParams.delete("range");
      address.searchParams.set("from", at(Math.min(from, to)));
      address.searchParams.set("to", at(Math.max(from, to)));
      location.assign(address);
    }, { once: true });
  });
  // -- picking rows -----------------------------------------------------------------------------
  const picking = byId("picked");
  if (picking) {
    const boxes = [...picking.querySelectorAll(".row-pick")];
    const all = picking.querySelector('[data-action="pick-all"]');
    const count = () => {
      const picked = boxes.filter((one) => one.checked).length;
      all.checked = picked === boxes.length;
      all.indeterminate = picked > 0 && !all.checked;
      picking.querySelector("[data-count]").textContent = picked ? picked + " picked" : "Pick all";
      for (const name of ["to-basket", "to-review"]) picking.querySelector(`[data-action="${name}"]`).disabled = !picked;
    };
    let from = null;
    picking.addEventListener("click", (event) => {
      const at = boxes.indexOf(event.target);
      if (at >= 0 && event.shiftKey && from !== null) for (const one of boxes.slice(Math.min(at, from), Math.max(at, from))) one.checked = boxes[from].checked;
      if (at >= 0) from = at;
    });
    picking.addEventListener("change", (event) => {
      if (event.target === all) for (const one of boxes) one.checked = all.checked;
      count();
    });
    count();
  }
  // A list remembers which row was opened: back puts the reader there.
  const place = "evaltap-row:" + location.pathname + "?" + new URLSearchParams(location.search);
  for (const link of document.querySelectorAll("[data-row]")) link.addEventListener("click", () => sessionStorage.setItem(place, link.getAttribute("href")));
  const last = sessionStorage.getItem(place);
  if (last && document.querySelector("[data-row]")) {
    const found = [...document.querySelectorAll("[data-row]")].find((one) => one.getAttribute("href") === last);
    if (found) found.focus();
  }
  for (const one of document.querySelectorAll(".filter select, [data-submit]")) one.addEventListener("change", () => one.form.requestSubmit());
})();
