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

  async function draw(place) {
    const answer = await fetch(place.dataset.history, { credentials: "same-origin" });
    if (!answer.ok || typeof uPlot === "undefined") return;
    const found = await answer.json();
    const rows = [found.at, ...LINES.map(([, column]) => found[column])];
    if (plot) { plot.setData(rows); return; }
    place.hidden = false;
    plot = new uPlot(options(place.clientWidth), rows, place);
    const again = () => { plot.destroy(); plot = null; draw(place).catch(() => {}); };
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
    addEventListener("resize", () => plot && plot.setSize({ width: place.clientWidth, height: 220 }));
  }

  // ---- numbers ----

  function inUse(part) {
    const chosen = document.getSelection();
    return part.contains(document.activeElement) ||
      (chosen && !chosen.isCollapsed && chosen.containsNode(part, true));
  }

  async function refresh() {
    if (paused || loading || document.hidden || Date.now() - last < PAUSE) return;
    loading = true;
    try {
      const answer = await fetch(location.href, {
        credentials: "same-origin", redirect: "error", headers: { Accept: "text/html" } });
      if (!answer.ok) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const part of document.querySelectorAll("[data-live]")) {
        const fresh = page.getElementById(part.id);
        if (fresh && !inUse(part) && fresh.innerHTML !== part.innerHTML) {
          part.replaceChildren(...Array.from(fresh.childNodes, (one) => document.importNode(one, true)));
        }
      }
      const place = document.querySelector("[data-history]");
      if (place) await draw(place);
    } catch { /* the next event tries again */ } finally { loading = false; last = Date.now(); }
  }

  function follow() {
    if (!document.querySelector("[data-live]") || !window.EventSource) return;
    const events = new EventSource(`${prefix}/api/v1/events`);
    events.addEventListener("open", () => { button.hidden = false; });
    for (const name of ["snapshot", "changes"]) events.addEventListener(name, refresh);
    addEventListener("pagehide", () => events.close());
    button.addEventListener("click", () => {
      paused = !paused;
      button.setAttribute("aria-pressed", String(!paused));
      button.textContent = paused ? "Paused" : "Live";
    });
  }

  const place = document.querySelector("[data-history]");
  if (place) draw(place).catch(() => {});
  if (button) follow();
})();
