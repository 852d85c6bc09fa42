"use strict";
// The chart of a series. Sessions that share a few pixels become one bar from the lowest to the highest sample; single samples are dots
// where there is room for them. No sample is hidden, because bars span all samples.
(() => {
  const place = document.getElementById("plot"), hint = document.getElementById("hint"), choice = document.getElementById("covariate");
  const data = JSON.parse(document.getElementById("data").textContent);
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;
  // Observations of earlier years are in two files, which many builds of the site share; one without the other is of no use.
  const older = globalThis.olderSessions && globalThis.olderSamples, sessions = { ...globalThis.olderSessions, ...data.sessions };
  const joined = (name, Numbers) => {
    const parts = [older, data].filter(Boolean).map((one) => new Numbers(bytes(one[name]))), all = new Numbers(parts.reduce((n, one) => n + one.length, 0));
    parts.reduce((at, one) => { all.set(one, at); return at + one.length; }, 0);
    return all;
  };
  const time = joined("time", Uint32Array), headline = joined("headline", Float32Array), count = joined("count", Uint16Array);
  const samples = joined("samples", Float32Array), run = joined("run", Uint32Array), session = joined("session", Uint32Array);
  const covariates = data.covariates.map((one) => ({ ...one, values: new Float32Array(bytes(one.values)).slice(-time.length) }));
  // As drawing.gap_threshold_s: seconds without a result that break a line.
  const gaps = time.slice(1).map((at, i) => at - time[i]).sort(), half = gaps.length >> 1;
  const interval = gaps.length % 2 ? gaps[half] : gaps.length ? (gaps[half - 1] + gaps[half]) / 2 : 0;
  const pause = Math.max(data.gap[0], data.gap[1] * interval);
  const start = new Uint32Array(time.length + 1);
  count.forEach((n, i) => { start[i + 1] = start[i] + n; });
  const transient = [...time.keys()].filter((i) => data.transients.some(([a, b]) => a <= time[i] && time[i] <= b));
  // Pixels per session from which on samples are dots, and per bar or point of a line; the most dots.
  const DOT_PIXELS = 3, BAR_PIXELS = 2.5, MOST_DOTS = 5000, NARROW = 600;
  const format = (value) => Number(value.toPrecision(4)).toLocaleString("en"), unit = data.unit === "1" ? "" : ` ${data.unit}`;
  const named = (label, of) => of ? `${label} (${of})` : label;
  const samplesOf = (i) => samples.subarray(start[i], start[i + 1]);
  const lowest = (values) => values.reduce((a, b) => Math.min(a, b)), highest = (values) => values.reduce((a, b) => Math.max(a, b));
  const lost = data.older && !older ? `The files of the ${data.older.toLocaleString("en")} older sessions could not be loaded. ` : "";
  let dots = false, chosen = null;

  // What is in view: the first session and the one after the last, with one more on each side, and sessions per point.
  function view(from, to, width) {
    const before = time.findIndex((one) => one >= from), after = time.findIndex((one) => one > to);
    const a = Math.max(0, (before < 0 ? time.length : before) - 1), b = after < 0 ? time.length : after + 1;
    return { a, b, every: Math.max(1, Math.ceil((b - a) * BAR_PIXELS / width)) };
  }
  // [first, after the last] of the sessions of each point; none spans missing sessions.
  function* points({ a, b, every }) {
    for (let i = a, k = a + 1; k <= b; k++) {
      if (k === b || k - i === every || time[k] - time[k - 1] > pause) { yield [i, k]; i = k; }
    }
  }
  // A line over values of sessions, with gaps where sessions are missing; a point of several sessions shows the value that differs most
  // from the first of them.
  function line(values, seen) {
    const found = [];
    for (const [i, after] of points(seen)) {
      let best = i;
      for (let k = i; k < after; k++) if (Math.abs(values[k] - values[i]) > Math.abs(values[best] - values[i])) best = k;
      if (i > seen.a && time[i] - time[i - 1] > pause) found.push(null);
      found.push(Number.isFinite(values[best]) ? [time[best], values[best]] : null);
    }
    return found;
  }
  const bars = (seen) => [...points(seen)].map(([i, after]) => {
    const values = samples.subarray(start[i], start[after]);
    return [time[i], lowest(values), highest(values)];
  });
  const singles = ({ a, b }) => [...time.slice(a, b)].flatMap((at, i) => [...samplesOf(a + i)].map((value) => [at, value]));

  // The reference with its bounds, and limits.
  function limits(from, to) {
    const found = Object.entries(data.limits).map(([name, value]) => ({ form: "rules", kind: name, points: [[value]], label: `${name} ${format(value)}` }));
    if (!data.reference) return found;
    const [low, value, high] = [data.reference[0] ?? -Infinity, data.reference[1], data.reference[2] ?? Infinity];
    const band = { form: "areas", kind: "band", points: Number.isFinite(low) || Number.isFinite(high) ? [[from, low, high, to, low, high]] : [] };
    return [band, { form: "rules", kind: "reference", points: [[value]] }, ...found];
  }
  function layers(from, to, seen) {
    const normal = data.normal.map(([first, last, low, high]) => [first, low, high, last, low, high]), main = line(headline, seen);
    const levels = ["level", "drift", "suspected"].map((kind) => {
      const inView = data.levels.filter(([first, last, , , one]) => one === kind && first <= to && last >= from);
      return { form: "line", kind, points: inView.flatMap(([first, last, value, end]) => [[first, value], [last, end], null]) };
    });
    const away = transient.filter((i) => seen.a <= i && i < seen.b).map((i) => [time[i], headline[i]]);
    return [
      ...limits(from, to), { form: "areas", kind: "normal", points: normal },
      dots ? { form: "dots", kind: "sample", points: singles(seen), data: true } : { form: "bars", kind: "sample", points: bars(seen), data: true },
      { form: "line", kind: "headline", points: main, data: true }, { form: "dots", kind: "headline-dot", points: dots ? main : [], data: true },
      ...levels, { form: "rings", kind: "away", points: away },
    ].filter((one) => one.points.length);
  }

  function panels(from, to, width) {
    const seen = view(from, to, width), { a, b, every } = seen, isNarrow = width < NARROW;
    dots = start[b] - start[a] <= MOST_DOTS && (b - a) * DOT_PIXELS <= width;
    hint.textContent = lost + (dots ? "Every dot is one sample." : `A bar spans all samples of ${every > 1 ? `${every} sessions` : "a session"}; zoom in for single samples.`);
    // Of the samples of a session the one next to the pointer, if they are dots.
    const value = (i, near) => dots && near !== undefined ? samplesOf(i).reduce((best, one) => Math.abs(one - near) < Math.abs(best - near) ? one : best, headline[i]) : headline[i];
    const main = { title: named(data.label, unit.trim()), height: isNarrow ? 240 : 340, layers: layers(from, to, seen), value };
    if (!chosen) return [main];
    const below = line(chosen.values, seen), lines = [{ form: "line", kind: "covariate", points: below, data: true }, { form: "dots", kind: "covariate-dot", points: dots ? below : [], data: true }];
    return [main, { title: named(chosen.label, chosen.unit), height: isNarrow ? 90 : 110, fitted: true, layers: lines, value: (i) => chosen.values[i] }];
  }

  const iso = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ");
  const local = (seconds) => iso(seconds + (data.offsets.findLast(([from]) => from <= seconds)?.[1] ?? data.offsets[0][1]));
  function describe(i, value) {
    const values = samplesOf(i), spread = values.length > 1 ? `${values.length} samples, ${format(lowest(values))} to ${format(highest(values))}` : "";
    // Names of the nodes of the newest sessions.
    const hosts = data.hosts[i - time.length + data.hosts.length], nodes = data.nodes == null ? "" : `${data.nodes} node${data.nodes === 1 ? "" : "s"}`;
    return [
      `${format(value)}${unit}${value === headline[i] ? "" : ", one sample"}`,
      `${local(time[i])} ${data.zone}${data.zone === "UTC" ? "" : ` (${iso(time[i]).slice(11)} UTC)`}`,
      value === headline[i] ? spread : `headline ${format(headline[i])}; ${spread}`,
      `session ${sessions[session[i]][0]}`, `stack ${data.stack}`, hosts ? `${nodes ? `${nodes}: ` : "on "}${hosts}` : nodes,
      chosen && Number.isFinite(chosen.values[i]) ? `${chosen.label}: ${format(chosen.values[i])} ${chosen.unit}` : "", `run ${run[i]}`,
    ].filter(Boolean);
  }
  function link(i) {
    const [uuid, page] = sessions[session[i]];
    return `../${page ?? `session/${uuid}.html`}#run-${run[i]}`;
  }

  // The covariate below the plot: the first one unless the address has another.
  const choose = (name) => {
    choice.value = name;
    chosen = covariates.find((one) => one.name === name) ?? null;
  };
  const restore = (state) => { if (choice) choose(state.get("below") ?? covariates[0].name); };
  const options = { name: place.getAttribute("aria-label"), zone: data.zone, offsets: data.offsets, times: time, marks: data.marks };
  const chart = place.chart = new TimeChart(place, { ...options, panels, describe, link, restore });
  if (choice) {
    chart.tools.append(choice.parentElement);
    choice.parentElement.hidden = false;
    choice.addEventListener("change", () => {
      choose(choice.value);
      chart.keep("below", choice.value === covariates[0].name ? "" : choice.value);
      chart.draw();
    });
  }
  document.documentElement.dataset.drawn = "yes";
})();
