// The pages need none of this: it keeps their numbers fresh, and draws the rates.
"use strict";
(() => {
  const prefix = document.currentScript.dataset.prefix;
  const PAUSE = 2000;
  const button = document.getElementById("live");
  let paused = false, loading = false, last = Date.now(), plot = null;

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // ---- rates ----

  // In UTC, as all times of the pages are.
  const clock = (at) => new Date(at * 1000).toISOString().slice(11, 19);

  // The legend shows the newest values while the pointer is elsewhere.
  const newest = (chart, column) => chart.data[column].at(-1) ?? 0;
  const shown = (chart, value, column) => (value ?? newest(chart, column)).toFixed(1);

  const LINES = [
    ["in/s", "rate_in", "--in", []], ["out/s", "rate_out", "--out", [6, 3]],
    ["failed/s", "rate_failed", "--failed", [2, 2]], ["expired/s", "rate_expired", "--expired", [8, 3, 2, 3]],
    ["dead/s", "rate_dead", "--dead", [12, 3]],
  ];

  function options(width) {
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 } };
    return {
      width, height: 220,
      series: [{ label: "UTC", value: (chart, at) => clock(at ?? newest(chart, 0)) },
               ...LINES.map(([label, , name, dash]) => (
                 { label, stroke: colour(name), width: 2, dash, value: shown }))],
      axes: [{ ...axis, space: 80, values: (_, places) => places.map(clock) }, { ...axis, size: 60 }],
      scales: { y: { range: (_, low, high) => [0, Math.max(high, 1)] } },
    };
  }

  async function load() {
    const place = document.querySelector("[data-history]");
    if (!place || typeof uPlot === "undefined") return null;
    const answer = await fetch(place.dataset.history, { credentials: "same-origin" });
    return answer.ok ? [place, await answer.json()] : null;
  }

  function draw(place, found) {
    // As far as the page has seen, so that the legend says what the tiles say.
    const seen = Number(document.querySelector("#seen time")?.dataset.at ?? Infinity);
    const end = found.at.findLastIndex((at) => at <= seen) + 1;
    const rows = [found.at, ...LINES.map(([, column]) => found[column])].map((one) => one.slice(0, end));
    if (plot) { plot.setData(rows); return; }
    place.hidden = false;
    plot = new uPlot(options(place.clientWidth), rows, place);
    const again = () => { plot.destroy(); plot = null; draw(place, found); };
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
    addEventListener("resize", () => plot && plot.setSize({ width: place.clientWidth, height: 220 }));
  }

  // ---- numbers ----

  // Either all parts are replaced or none, so that a page shows one reading.
  // A page without numbers that change shows its own time for ever.
  const live = () => [...document.querySelectorAll(
    document.getElementById("page") ? "[data-live]" : "#old[data-live]")];

  function selects() {
    const chosen = document.getSelection();
    return chosen && !chosen.isCollapsed && live().some((part) => chosen.containsNode(part, true));
  }

  // What the reader did to a part: its scrolled tables, its details, and the focus.
  function keep(part) {
    const all = (kind) => [...part.querySelectorAll(kind)];
    const focusable = "a[href], button, summary, [tabindex]";
    const scrolled = all(".scroll").map((one) => one.scrollLeft);
    const opened = all("details").map((one) => one.open);
    const focus = document.activeElement, place = all(focusable).indexOf(focus);
    return () => {
      all(".scroll").forEach((one, at) => { one.scrollLeft = scrolled[at] ?? 0; });
      all("details").forEach((one, at) => { one.open = opened[at] ?? one.open; });
      if (place < 0) return;
      const again = all(focusable);
      const same = focus.href ? again.find((one) => one.href === focus.href) : again[place];
      (same ?? document.getElementById("main")).focus({ preventScroll: true });
    };
  }

  function replace(part, fresh) {
    if (fresh.innerHTML === part.innerHTML) return;
    const restore = keep(part);
    part.replaceChildren(...Array.from(fresh.childNodes, (one) => document.importNode(one, true)));
    restore();
  }

  // The next successful refresh replaces this, too.
  function stale(why) {
    const seen = document.getElementById("seen");
    if (!seen.querySelector(".bad")) {
      seen.append(Object.assign(document.createElement("span"), { className: "bad" }));
    }
    seen.querySelector(".bad").textContent = ` not updated: ${why}`;
  }

  async function refresh() {
    if (paused || loading || document.hidden || Date.now() - last < PAUSE) return;
    if (selects()) { stale("text is selected"); return; }
    loading = true;
    try {
      const answer = await fetch(location.href, {
        credentials: "same-origin", redirect: "error", headers: { Accept: "text/html" } });
      if (!answer.ok) { stale(`the server answers ${answer.status}`); return; }
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const history = await load();
      const fresh = live().map((part) => [part, page.getElementById(part.id)]);
      if (paused || selects()) return;
      if (fresh.some(([, part]) => !part)) { location.reload(); return; }
      for (const [part, other] of fresh) replace(part, other);
      if (history) draw(...history);
    } catch { stale("no answer"); } finally { loading = false; last = Date.now(); }
  }

  function follow() {
    if (!document.querySelector("main [data-live]") || !window.EventSource) return;
    const events = new EventSource(`${prefix}/api/v1/events`);
    events.addEventListener("open", () => { button.hidden = !document.getElementById("page"); });
    events.addEventListener("error", () => stale("the connection is lost"));
    for (const name of ["snapshot", "changes"]) events.addEventListener(name, refresh);
    addEventListener("pagehide", () => events.close());
    button.addEventListener("click", () => {
      paused = !paused;
      button.setAttribute("aria-pressed", String(!paused));
      button.textContent = paused ? "Paused" : "Live";
    });
  }

  load().then((history) => history && draw(...history)).catch(() => {});
  if (button) follow();
})();
