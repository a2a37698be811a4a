"use strict";
// Keeps the page up to date from its stream of events. The server has drawn everything already; without this script it stays as it was.
(() => {
  const url = document.body.dataset.stream;
  const button = document.getElementById("live");
  if (!url || !window.EventSource) return;

  const plots = document.querySelector(".graphs");
  const steps = plots ? Number(plots.dataset.steps) : 0;
  const step = plots ? Number(plots.dataset.step) : 1;
  const short = (v) => (v < 100 ? v.toFixed(1).replace(/\.0$/, "") : v.toFixed(0));
  const write = {
    rate: (v) => (v >= 1e6 ? short(v / 1e6) + "M" : v >= 1e4 ? short(v / 1e3) + "k" : short(v)) + "/s",
    time: (v) => (v >= 1e6 ? short(v / 1e6) + " s" : v >= 1e3 ? short(v / 1e3) + " ms" : v.toFixed(0) + " µs"),
    percent: (v) => v.toFixed(0) + " %",
    number: short,
  };
  const roundUp = (v) => {
    if (!(v > 0)) return 1;
    const power = 10 ** Math.floor(Math.log10(v));
    return ([1, 1.5, 2, 2.5, 3, 4, 5, 7.5, 10].find((s) => s * power >= v * 0.999999) || 10) * power;
  };
  const known = (v) => v !== null && v !== undefined;

  let lines = [];
  const figures = plots ? [...plots.querySelectorAll("figure")].map((figure) => {
    const plot = figure.querySelector(".plot");
    const one = {
      of: figure.dataset.lines.split(" ").map(Number),
      write: write[figure.dataset.unit],
      values: [...figure.querySelectorAll(".key b")],
      names: [...figure.querySelectorAll(".key")].map((key) => key.childNodes[1].textContent.trim()),
      most: figure.querySelector(".most"),
      strokes: [...figure.querySelectorAll("path.line")],
      area: figure.querySelector("path.area"),
      cross: figure.querySelector("path.cross"),
      told: figure.querySelector("output"),
    };
    plot.addEventListener("pointermove", (e) => {
      const box = plot.getBoundingClientRect();
      point(one, Math.max(0, Math.min(steps - 1, Math.round(((e.clientX - box.left) / box.width) * (steps - 1)))), box.width);
    });
    plot.addEventListener("pointerleave", () => { one.told.hidden = true; one.cross.setAttribute("d", ""); });
    return one;
  }) : [];

  function ago(seconds) {
    if (seconds < 1) return "now";
    if (seconds < 120) return seconds + " s ago";
    if (seconds < 7200) return Math.round(seconds / 60) + " min ago";
    return seconds < 172800 ? (seconds / 3600).toFixed(1) + " h ago" : (seconds / 86400).toFixed(1) + " d ago";
  }

  // What the values are where the pointer is.
  function point(figure, at, width) {
    if (!lines.length) return;
    const parts = figure.of.map((line, n) => (figure.names[n] ? figure.names[n] + " " : "") + (known(lines[line][at]) ? figure.write(lines[line][at]) : "–"));
    figure.told.textContent = ago((steps - 1 - at) * step) + ": " + parts.join(", ");
    figure.told.hidden = false;
    figure.told.className = at * 2 > steps ? "before" : "";
    figure.told.style.setProperty("--x", ((at / (steps - 1)) * 100).toFixed(1) + "%");
    figure.cross.setAttribute("d", `M${at} 0V100`);
  }

  function path(values, most, area) {
    let d = "", open = false, start = 0;
    const close = (end) => { if (area && open) d += `L${end} 100L${start} 100Z`; };
    values.forEach((v, x) => {
      if (!known(v)) { close(x - 1); open = false; return; }
      const y = (100 - (100 * v) / most).toFixed(1);
      if (open) d += `L${x} ${y}`;
      else { d += `M${x} ${y}h0`; start = x; }
      open = true;
    });
    close(values.length - 1);
    return d;
  }

  function draw() {
    for (const figure of figures) {
      const own = figure.of.map((line) => lines[line] || []);
      const most = roundUp(Math.max(0, ...own.flat().filter(known)));
      figure.most.textContent = figure.write(most);
      own.forEach((values, at) => {
        figure.strokes[at].setAttribute("d", path(values, most, false));
        const last = values[values.length - 1];
        figure.values[at].textContent = known(last) ? figure.write(last) : "–";
      });
      figure.area.setAttribute("d", path(own[0], most, true));
    }
  }

  function advance(graph) {
    if (!graph || !plots) return;
    if (lines.length !== graph.lines.length) lines = graph.lines.map(() => []);
    let moved = false;
    graph.lines.forEach((values, at) => {
      moved ||= values.length > 0;
      lines[at].push(...values);
      lines[at].splice(0, Math.max(0, lines[at].length - steps));
    });
    if (moved) draw();
  }

  const facts = [...document.querySelectorAll(".facts dd")];
  const rows = document.body.dataset.rows;
  const width = document.querySelectorAll("table.proxy thead tr:last-child th").length /
    Math.max(1, document.querySelectorAll("table.proxy").length);

  // As the server writes ages.
  function age(seconds) {
    const days = Math.floor(seconds / 86400), hours = Math.floor(seconds / 3600) % 24, minutes = Math.floor(seconds / 60) % 60;
    if (days) return `${days}d${hours}h`;
    if (hours) return `${hours}h${minutes}m`;
    return minutes ? `${minutes}m${seconds % 60}s` : `${seconds}s`;
  }

  // What only ages is not sent again: elements say when they began, on the server's clock.
  function count(now) {
    for (const time of document.querySelectorAll("time[data-at]")) {
      const text = age(Math.max(0, Math.floor((now - time.dataset.at) / 1000)));
      if (time.textContent !== text) time.textContent = text;
    }
  }

  function change(event) {
    for (const [at, html] of event.facts || []) facts[at].innerHTML = html;
    if (event.rows !== rows) return stale();
    for (const [key, column, html] of event.cells || []) {
      const row = document.getElementById(key);
      if (!row) continue;
      const cell = row.cells[row.cells.length - width + column];
      if (cell.innerHTML === html) continue;
      cell.innerHTML = html;
      const state = cell.querySelector(".state");
      if (!state) continue;
      const mini = row.querySelector(".mini");
      mini.className = state.className + " mini";
      mini.textContent = state.textContent;
      row.className = (row.classList.contains("side") ? "side " : "") + state.className.replace("state ", "");
    }
  }

  function stale() {
    const old = document.getElementById("stale");
    if (old) return;
    const note = document.createElement("p");
    note.id = "stale";
    note.className = "done bad";
    note.append("Proxies or servers were added or removed: ");
    const link = document.createElement("a");
    link.href = location.href;
    link.textContent = "reload the page";
    link.addEventListener("click", (e) => { e.preventDefault(); location.reload(); });
    note.append(link);
    document.querySelector("main").prepend(note);
  }

  let source = null;
  const say = (word, text) => { button.className = word; button.textContent = text; };
  function open() {
    source = new EventSource(url);
    let first = true;
    say("wait", "connecting");
    source.onopen = () => { first = true; say("on", "live"); };
    source.onmessage = (e) => {
      const event = JSON.parse(e.data);
      if (first) lines = [];
      first = false;
      change(event);
      count(event.now);
      advance(event.graph);
    };
    source.onerror = () => say("off", source.readyState === 2 ? "not live: reload to try again" : "reconnecting");
  }
  function close() {
    source.close();
    source = null;
    say("off", "paused");
  }
  button.hidden = false;
  button.title = "Click to pause or go on";
  button.addEventListener("click", () => (source ? close() : open()));
  open();
})();
