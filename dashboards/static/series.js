"use strict";
// Draws a series. Plotly draws lines and dots as SVG, which every browser supports. To keep ten years responsive, some
// thousand shapes are drawn at most: sessions that share a pixel become one bar from lowest to highest, and single
// samples are shown when few sessions are in view. No sample is hidden, because bars span all samples.
(() => {
  const place = document.getElementById("plot"), hint = document.getElementById("hint");
  if (!window.Plotly || !place) return;
  const data = JSON.parse(document.getElementById("data").textContent);
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;
  const time = new Uint32Array(bytes(data.time)), headline = new Float32Array(bytes(data.headline)), count = new Uint16Array(bytes(data.count));
  const samples = new Float32Array(bytes(data.samples)), run = new Uint32Array(bytes(data.run)), session = new Uint32Array(bytes(data.session));
  const start = new Uint32Array(time.length + 1);
  count.forEach((n, i) => { start[i + 1] = start[i] + n; });
  const DASHES = { level: "solid", drift: "longdash", suspected: "dot" };
  const transient = [...time.keys()].filter((i) => data.transients.some(([a, b]) => a <= time[i] && time[i] <= b));
  const MOST_DOTS = 600, MOST_BARS = 400;
  // Date format of the site: 5 Apr 2026.
  const DATES = [[null, 86400000, "%H:%M\n%-d %b %Y"], [86400000, "M1", "%-d %b\n%Y"], ["M1", "M12", "%b %Y"], ["M12", null, "%Y"]].map(([a, b, value]) => ({ dtickrange: [a, b], value }));
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const format = (value) => Number(value.toPrecision(4)).toLocaleString("en");
  // Plotly shows Date objects and numbers in the zone of the browser, so it receives text in the zone of the site.
  const offset = (seconds) => data.offsets.findLast(([from]) => from <= seconds)?.[1] ?? data.offsets[0][1];
  const text = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 19).replace("T", " ");
  const stamp = (seconds) => text(seconds + offset(seconds));
  const day = (seconds) => stamp(seconds).slice(0, 10);
  // From local time of the site (ms) to UTC (s).
  const utc = (shown) => { const near = shown / 1000 - offset(shown / 1000); return shown / 1000 - offset(near); };

  function lower(value) {  // first session not before `value`
    let a = 0, b = time.length;
    while (a < b) { const m = (a + b) >> 1; if (time[m] < value) a = m + 1; else b = m; }
    return a;
  }
  function describe(i) {
    // Names of the nodes of the newest sessions.
    const hosts = data.hosts[i - time.length + data.hosts.length]?.replace(/[<>&]/g, " ");
    const many = data.nodes == null ? "" : `${data.nodes} node${data.nodes === 1 ? "" : "s"}`;
    const nodes = hosts ? `<br>${many ? `${many}: ` : "on "}${hosts}` : many && `<br>${many}`;
    const name = data.sessions[session[i]][0].replace(/[<>&]/g, " "), stack = data.stack.slice(0, 80).replace(/[<>&]/g, " ");
    const also = data.zone === "UTC" ? "" : ` (${text(time[i]).slice(11, 16)} UTC)`;
    return `${stamp(time[i]).slice(0, 16)} ${data.zone}${also}<br>session ${name}<br>stack ${stack}${nodes}<br>run ${run[i]}`;
  }

  // Points and bars of the sessions from `from` to `to` (seconds).
  function view(from, to) {
    const a = Math.max(0, lower(from) - 1), b = Math.min(time.length, lower(to) + 1), every = Math.max(1, Math.ceil((b - a) / MOST_BARS));
    const dots = start[b] - start[a] <= MOST_DOTS;
    const line = { x: [], y: [], text: [], night: [] }, spread = { x: [], y: [], text: [], night: [] };
    for (let i = a; i < b; i += every) {
      let best = i, low = Infinity, high = -Infinity;
      const last = Math.min(b, i + every);
      for (let k = i; k < last; k++) {
        if (Math.abs(headline[k] - headline[i]) > Math.abs(headline[best] - headline[i])) best = k;
      }
      for (let s = start[i]; s < start[last]; s++) { if (samples[s] < low) low = samples[s]; if (samples[s] > high) high = samples[s]; }
      // No line over missing sessions.
      if (i > a && time[i] - time[i - 1] > data.pause) { line.x.push(stamp(time[i - 1] + 1)); line.y.push(null); line.text.push(""); line.night.push(undefined); }
      line.x.push(stamp(time[best])); line.y.push(headline[best]); line.text.push(describe(best)); line.night.push(best);
      if (!dots) spread.x.push(stamp(time[i]), stamp(time[i]), null), spread.y.push(low, high, null);
    }
    if (dots) for (let i = a; i < b; i++) for (let s = start[i]; s < start[i + 1]; s++) { spread.x.push(stamp(time[i])); spread.y.push(samples[s]); spread.text.push(describe(i)); spread.night.push(i); }
    return { line, spread, dots, every };
  }

  function traces(seen) {
    const value = `%{y:,.5~r} ${data.unit}`;
    return [
      { x: seen.spread.x, y: seen.spread.y, text: seen.spread.text, customdata: seen.spread.night, name: "samples", type: "scatter", mode: seen.dots ? "markers" : "lines",
        marker: { size: 4, color: colour("--sample") }, line: { width: 1.5, color: colour("--sample") }, ...(seen.dots ? { hovertemplate: `${value}, one sample<br>%{text}<extra></extra>` } : { hoverinfo: "skip" }) },
      { x: seen.line.x, y: seen.line.y, text: seen.line.text, customdata: seen.line.night, name: "headline", type: "scatter", mode: seen.line.x.length > 250 ? "lines" : "lines+markers",
        line: { width: 1.5, color: colour("--headline") }, marker: { size: 5, color: colour("--headline") }, hovertemplate: `<b>${value}</b><br>%{text}<extra></extra>` },
      ...["level", "drift", "suspected"].map((kind) => {
        const held = data.levels.filter((one) => one[4] === kind);
        return { x: held.flatMap(([a, b]) => [stamp(a), stamp(b), null]), y: held.flatMap(([, , low, high]) => [low, high, null]), name: kind,
          type: "scatter", mode: "lines", line: { width: 3, color: colour("--level"), dash: DASHES[kind] }, hoverinfo: "skip" };
      }),
      { x: transient.map((i) => stamp(time[i])), y: transient.map((i) => headline[i]), customdata: transient, name: "transient", type: "scatter", mode: "markers",
        marker: { symbol: "circle-open", size: 11, line: { width: 2 }, color: colour("--level") }, hoverinfo: "skip" },
    ];
  }

  const near = Object.entries(data.limits), top = 1.08 * data.top;
  function shapes() {
    const found = [], across = { xref: "paper", x0: 0, x1: 1 };
    if (data.reference) {
      const [low, value, high] = data.reference;
      if (low !== null || high !== null) found.push({ ...across, type: "rect", y0: low ?? 0, y1: high ?? top, fillcolor: colour("--band"), line: { width: 0 }, layer: "below" });
      found.push({ ...across, type: "line", y0: value, y1: value, line: { color: colour("--reference"), dash: "dash", width: 1 } });
    }
    for (const [name, value] of near) {
      found.push({ ...across, type: "line", y0: value, y1: value, line: { color: colour(`--${name}`), dash: "dot", width: 1.5 }, label: { text: `${name} ${format(value)}`, textposition: "end", font: { color: colour(`--${name}`), size: 11 } } });
    }
    data.marks.forEach(([at, kind, numbers]) => found.push({ type: "line", x0: stamp(at), x1: stamp(at), yref: "paper", y0: 0, y1: 1, line: { color: colour(`--${kind}`), dash: "dash", width: 1 }, label: { text: numbers, textposition: "end", textangle: 0, font: { color: colour(`--${kind}`), size: 12 } } }));
    return found;
  }

  const first = time[0] - 43200, last = time[time.length - 1] + 43200;
  // The range is in the address: #from=2009-03-01&to=2009-04-01
  function wanted() {
    const asked = new URLSearchParams(location.hash.slice(1)), from = utc(Date.parse(asked.get("from"))), to = utc(Date.parse(asked.get("to")) + 86400e3);
    return [Number.isFinite(from) ? from : first, Number.isFinite(to) ? to : last];
  }
  function layout([from, to]) {
    const axis = { gridcolor: colour("--line"), linecolor: colour("--line"), zerolinecolor: colour("--line") };
    return {
      xaxis: { ...axis, type: "date", range: [stamp(from), stamp(to)], title: { text: data.zone }, tickformatstops: DATES },
      yaxis: { ...axis, range: [0, top], exponentformat: "none", title: { text: `${data.label} (${data.unit})` } },
      paper_bgcolor: colour("--paper"), plot_bgcolor: colour("--paper"), font: { color: colour("--ink"), family: "system-ui, sans-serif", size: 12 },
      margin: { t: 24, r: 12, l: 70, b: 44 }, showlegend: false, hovermode: "closest", dragmode: "zoom", shapes: shapes(), uirevision: "kept",
    };
  }
  let seen;
  function showHint() {
    hint.textContent = seen.dots ? "Every dot is one sample; a click opens the run. Drag to zoom, double-click for all." : `${seen.every > 1 ? `A bar spans all samples of ${seen.every} sessions` : "A bar spans all samples of a session"}; zoom in (drag) for single samples.`;
  }
  let busy = false;
  async function draw(range, options) {
    busy = true;
    seen = view(...range);
    await window.Plotly.react(place, traces(seen), layout(range), options);
    busy = false;
    showHint();
  }
  // No buttons on a phone, where they would cover the marks; pinch to zoom.
  const options = { responsive: true, displaylogo: false, displayModeBar: place.clientWidth < 600 ? false : "hover", modeBarButtons: [["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "autoScale2d", "toImage"]] };
  place.classList.add("drawn");
  draw(wanted(), options).then(() => {
    place.on("plotly_relayout", (change) => {
      if (busy) return;
      const all = change["xaxis.autorange"], from = change["xaxis.range[0]"] ?? change["xaxis.range"]?.[0], to = change["xaxis.range[1]"] ?? change["xaxis.range"]?.[1];
      if (!all && from === undefined) return;
      const seconds = (value) => utc(+new Date(typeof value === "string" ? `${value.replace(" ", "T")}${value.length > 10 ? "Z" : ""}` : value));
      const range = all ? [first, last] : [seconds(from), seconds(to)];
      if (!range.every(Number.isFinite)) return;
      history.replaceState(null, "", all ? location.pathname + location.search : `#from=${day(range[0])}&to=${day(range[1])}`);
      draw(range, options);
    });
    place.on("plotly_click", ({ points: [point] }) => {
      if (point.customdata === undefined) return;
      const [uuid, page] = data.sessions[session[point.customdata]];
      location.href = `../${page ?? `session/${uuid}.html`}#run-${run[point.customdata]}`;
    });
    document.documentElement.dataset.drawn = "yes";
  });
  addEventListener("hashchange", () => draw(wanted(), options));
  dark.addEventListener("change", () => draw(wanted(), options));
})();
