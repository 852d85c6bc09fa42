"use strict";
// The chart of a series. Sessions that share a few pixels become one bar from the lowest to the highest sample; single samples are dots
// where there is room for them. No sample is hidden, because bars span all samples.
(() => {
  const place = document.getElementById("plot"), hint = document.getElementById("hint");
  const data = JSON.parse(document.getElementById("data").textContent);
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;
  const time = new Uint32Array(bytes(data.time)), headline = new Float32Array(bytes(data.headline)), count = new Uint16Array(bytes(data.count));
  const samples = new Float32Array(bytes(data.samples)), run = new Uint32Array(bytes(data.run)), session = new Uint32Array(bytes(data.session));
  const covariates = data.covariates.map((one) => ({ ...one, values: new Float32Array(bytes(one.values)) }));
  const start = new Uint32Array(time.length + 1);
  count.forEach((n, i) => { start[i + 1] = start[i] + n; });
  const transient = [...time.keys()].filter((i) => data.transients.some(([a, b]) => a <= time[i] && time[i] <= b));
  // Pixels per session from which on samples are dots, and per bar or point of a line; the most dots.
  const DOT_PIXELS = 3, BAR_PIXELS = 2.5, MOST_DOTS = 5000;
  const format = (value) => Number(value.toPrecision(4)).toLocaleString("en"), unit = data.unit === "1" ? "" : ` ${data.unit}`;
  const iso = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ");
  const local = (seconds) => iso(seconds + (data.offsets.findLast(([from]) => from <= seconds)?.[1] ?? data.offsets[0][1]));
  let dots = false, chosen = null;

  // Indices of the sessions in view and one on each side, and how many share a point.
  function view(from, to, width) {
    const a = Math.max(0, time.findIndex((one) => one >= from) - 1), after = time.findIndex((one) => one > to), b = after < 0 ? time.length : after + 1;
    return [a, b, Math.max(1, Math.ceil((b - a) * BAR_PIXELS / width))];
  }
  // A line over values of sessions; of several that share a point it shows the one that differs most from the first. It has gaps where
  // sessions are missing.
  function line(values, [a, b, every]) {
    const points = [];
    for (let i = a; i < b; i += every) {
      let best = i;
      for (let k = i; k < Math.min(b, i + every); k++) if (Math.abs(values[k] - values[i]) > Math.abs(values[best] - values[i])) best = k;
      if (i > a && time[i] - time[i - 1] > data.pause) points.push(null);
      points.push(Number.isFinite(values[best]) ? [time[best], values[best]] : null);
    }
    return points;
  }
  function bars([a, b, every]) {
    const found = [];
    for (let i = a; i < b; i += every) {
      let low = Infinity, high = -Infinity;
      for (let s = start[i]; s < start[Math.min(b, i + every)]; s++) { if (samples[s] < low) low = samples[s]; if (samples[s] > high) high = samples[s]; }
      found.push([time[i], low, high]);
    }
    return found;
  }
  function singles([a, b]) {
    const found = [];
    for (let i = a; i < b; i++) for (let s = start[i]; s < start[i + 1]; s++) found.push([time[i], samples[s]]);
    return found;
  }

  function layers(from, to, seen) {
    const [a, b, every] = seen, found = [], add = (form, kind, points, more) => { if (points.length) found.push({ form, kind, points, ...more }); };
    const inView = (one) => one[0] <= to && one[1] >= from;
    if (data.reference) {
      const [low, value, high] = data.reference;
      if (low !== null || high !== null) add("areas", "band", [[from, low ?? -Infinity, high ?? Infinity, to, low ?? -Infinity, high ?? Infinity]]);
      add("rules", "reference", [[value]]);
    }
    add("areas", "normal", data.normal.map(([first, last, ...ends]) => [first, ends[0], ends[1], last, ends[2], ends[3]]));
    if (dots) add("dots", "sample", singles(seen), { data: true }); else add("bars", "sample", bars(seen), { data: true });
    add("line", "headline", line(headline, seen), { data: true });
    if (dots && every === 1) add("dots", "headline-dot", found.at(-1).points.filter(Boolean));
    for (const kind of ["level", "drift", "suspected"]) {
      add("line", kind, data.levels.filter((one) => one[4] === kind && inView(one)).flatMap(([first, last, low, high]) => [[first, low], [last, high], null]));
    }
    add("rings", "away", transient.filter((i) => a <= i && i < b).map((i) => [time[i], headline[i]]));
    for (const [name, value] of Object.entries(data.limits)) add("rules", name, [[value]], { label: `${name} ${format(value)}` });
    return found;
  }

  function panels(from, to, width) {
    const seen = view(from, to, width), [a, b, every] = seen;
    dots = start[b] - start[a] <= MOST_DOTS && (b - a) * DOT_PIXELS <= width;
    hint.textContent = dots ? "Every dot is one sample." : `A bar spans all samples of ${every > 1 ? `${every} sessions` : "a session"}; zoom in for single samples.`;
    // Of a session's samples the one next to the pointer, if they are dots.
    const sample = (i, near) => samples.subarray(start[i], start[i + 1]).reduce((best, one) => Math.abs(one - near) < Math.abs(best - near) ? one : best, headline[i]);
    const main = { title: `${data.label}${unit && ` (${data.unit})`}`, height: width < 600 ? 240 : 340, layers: layers(from, to, seen), value: (i, near) => dots && near !== undefined ? sample(i, near) : headline[i] };
    if (!chosen) return [main];
    const points = line(chosen.values, seen), below = [{ form: "line", kind: "covariate", points, data: true }, { form: "dots", kind: "covariate-dot", points: dots ? points.filter(Boolean) : [], data: true }];
    return [main, { title: `${chosen.label}${chosen.unit && ` (${chosen.unit})`}`, height: width < 600 ? 90 : 110, fitted: true, layers: below, value: (i) => chosen.values[i] }];
  }

  function describe(i, value) {
    // Names of the nodes of the newest sessions.
    const hosts = data.hosts[i - time.length + data.hosts.length];
    const many = data.nodes == null ? "" : `${data.nodes} node${data.nodes === 1 ? "" : "s"}`, names = samples.subarray(start[i], start[i + 1]);
    const spread = names.length > 1 ? `${names.length} samples, ${format(names.reduce((a, b) => Math.min(a, b)))} to ${format(names.reduce((a, b) => Math.max(a, b)))}` : "";
    return [
      `${format(value)}${unit}${value === headline[i] ? "" : ", one sample"}`,
      `${local(time[i])} ${data.zone}${data.zone === "UTC" ? "" : ` (${iso(time[i]).slice(11)} UTC)`}`,
      value === headline[i] ? spread : `headline ${format(headline[i])}; ${spread}`,
      `session ${data.sessions[session[i]][0]}`, `stack ${data.stack}`, hosts ? `${many ? `${many}: ` : "on "}${hosts}` : many,
      chosen && Number.isFinite(chosen.values[i]) ? `${chosen.label}: ${format(chosen.values[i])} ${chosen.unit}` : "", `run ${run[i]}`,
    ].filter(Boolean);
  }
  function link(i) {
    const [uuid, page] = data.sessions[session[i]];
    return `../${page ?? `session/${uuid}.html`}#run-${run[i]}`;
  }

  const choice = document.getElementById("covariate");
  const restore = (state) => {
    if (!choice) return;
    choice.value = state.get("below") ?? covariates[0].name;
    chosen = covariates.find((one) => one.name === choice.value) ?? null;
  };
  const chart = timeChart(place, { name: place.getAttribute("aria-label"), zone: data.zone, offsets: data.offsets, times: time, marks: data.marks, panels, describe, link, restore });
  place.chart = chart;
  if (choice) {
    chart.tools.append(choice.parentElement);
    choice.parentElement.hidden = false;
    choice.addEventListener("change", () => {
      chosen = covariates.find((one) => one.name === choice.value) ?? null;
      chart.keep("below", choice.value === covariates[0].name ? "" : choice.value);
      chart.draw();
    });
  }
  document.documentElement.dataset.drawn = "yes";
})();
