"use strict";
// Interactive chart of values over time as SVG, in the style classes of the pictures that drawing.py makes.
//
// timeChart(place, {
//   name               accessible name
//   zone, offsets      time zone of the site: its name; [[epoch s, offset in s], …] as core.utc_offsets returns
//   times              epoch s of the observations in order of time
//   marks              [[epoch s, style class, text], …]: vertical lines
//   panels(from, to, width)    panels from top to bottom for a range (epoch s) and a width (pixels):
//     { title, height (pixels), fitted (the axis need not start at zero), layers,
//       value(i, near): value of observation i, the one closest to the value `near` if that is given }
//     layer: { form, kind (style class), points, data (an axis that does not start at zero fits it), label (of a rule) };
//     points by form, with times in epoch s: line [[time, value], …], null breaks it; dots, rings [[time, value], …];
//     bars [[time, lowest, highest], …]; areas [[time, lowest, highest, time, lowest, highest], …]; rules [[value], …]
//   describe(i, value)  lines of text about a value of observation i, the first is the heading
//   link(i)             address of observation i
//   restore(state)      reads what the page itself keeps in the address (URLSearchParams)
// }) returns { times, tools (element of the buttons), range(), shown() (panels), place(i) (pixels), link(i), draw(), show(from, to),
// keep(name, value) }; `keep` stores a value in the address, where the range is, too: #from=2009-03-01&to=2009-04-01, days in the zone
// of the site, both inclusive.
const timeChart = (() => {
  const DAY = 86400, RANGES = [["30 d", 30 * DAY], ["90 d", 90 * DAY], ["1 y", 365 * DAY]], MIN_SPAN = 3600;
  const TOP = 36, BOTTOM = 24, RIGHT = 8, BETWEEN = 28, NEAR = 14, PRINTED_WIDTH = 720;
  const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
  const STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin", "opacity", "font-family", "font-size", "font-weight", "text-anchor"];
  const format = (value) => Number(value.toPrecision(4)).toLocaleString("en");

  // Path data of a layer of each form, with scales from data to pixels; a line without length is a dot (round caps).
  const path = (points, draw) => points.map((point, i) => point ? draw(point, i) : "").join("");
  const PATHS = {
    line: (points, x, y) => path(points, ([a, b], i) => i && points[i - 1] ? `L${x(a)},${y(b)}` : `M${x(a)},${y(b)}h0`),
    dots: (points, x, y) => path(points, ([a, b]) => `M${x(a)},${y(b)}h0`),
    rings: (points, x, y) => path(points, ([a, b]) => `M${x(a)},${y(b)}m-5,0a5,5 0 1 0 10,0a5,5 0 1 0 -10,0`),
    bars: (points, x, y) => path(points, ([a, low, high]) => `M${x(a)},${y(low)}V${y(high)}`),
    areas: (points, x, y) => path(points, ([a, la, ha, b, lb, hb]) => `M${x(a)},${y(la)}V${y(ha)}L${x(b)},${y(hb)}V${y(lb)}Z`),
    rules: (points, x, y, [left, right]) => path(points, ([a]) => `M${left},${y(a)}H${right}`),
  };
  // Values of a point that the axis must contain.
  const VALUES = { line: (p) => [p[1]], dots: (p) => [p[1]], rings: () => [], bars: (p) => p.slice(1), areas: () => [], rules: (p) => p };

  function node(name, attributes = {}, ...children) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  // Lowest and highest value of an axis: from zero to above everything, or around the data.
  function axisRange(layers, fitted) {
    let low = Infinity, high = -Infinity;
    for (const { form, points } of layers.filter((one) => one.data || !fitted)) {
      for (const point of points) for (const value of point ? VALUES[form](point) : []) { low = Math.min(low, value); high = Math.max(high, value); }
    }
    if (!(high >= low)) return [0, 1];
    if (!fitted) return [Math.min(0, low), high > 0 ? 1.08 * high : 1];
    const room = 0.08 * (high - low) || 0.05 * Math.abs(high) || 1;
    return [low >= 0 ? Math.max(0, low - room) : low - room, high + room];
  }

  // Four to nine round values.
  function valueTicks([low, high]) {
    const size = 10 ** Math.floor(Math.log10((high - low) / 4)), found = [];
    const step = size * [1, 2, 2.5, 5, 10].find((m) => m * size >= 0.16 * (high - low));
    for (let n = Math.ceil(low / step - 1e-9); n * step <= high; n++) found.push(n * step);
    return found;
  }

  return function timeChart(place, options) {
    const { zone, offsets, times, marks } = options, extent = [times[0] - DAY / 2, times.at(-1) + DAY / 2];
    const make = (name, properties) => Object.assign(document.createElement(name), properties);
    const tools = make("div", { className: "ranges" }), surface = make("div", { className: "surface", tabIndex: 0 }), tip = make("div", { className: "tip", hidden: true });
    let range = extent, panels = [], scale = null, cursor = node("g"), current = null, pressed = null, fit = false, buttons = [];

    // Times are those of the site, whatever the zone of the reader: `shown` times are local times as if they were UTC.
    const offset = (seconds) => offsets.findLast(([from]) => from <= seconds)?.[1] ?? offsets[0][1];
    const shown = (seconds) => seconds + offset(seconds), utc = (local) => local - offset(local - offset(local));
    const text = (local) => new Date(local * 1000).toISOString().slice(0, 16);
    const snapped = (seconds, round) => utc(round(shown(seconds) / DAY) * DAY);
    const lower = (value) => { let a = 0, b = times.length; while (a < b) { const m = (a + b) >> 1; if (times[m] < value) a = m + 1; else b = m; } return a; };

    // [[epoch s, label], …] at round local times.
    function dateTicks([from, to], most) {
      const span = to - from, found = [];
      const add = (local, label) => { const at = utc(local); if (at >= from && at <= to) found.push([at, label(new Date(local * 1000))]); };
      const day = (date) => `${date.getUTCDate()} ${MONTHS[date.getUTCMonth()]}${found.length ? "" : ` ${date.getUTCFullYear()}`}`;
      const hour = (date) => date.getUTCHours() ? text(date / 1000).slice(11) : day(date);
      const [unit, steps, label] = span <= 2.5 * DAY ? [3600, [1, 2, 3, 6, 12, 24], hour] : [DAY, [1, 2, 7, 14], day];
      const step = unit * steps.find((one) => span / unit / one <= most);
      for (let at = Math.ceil(shown(from) / step) * step; step && at <= to + DAY; at += step) add(at, label);
      if (step) return found;
      const every = [1, 2, 3, 6, 12, 24, 60, 120, 1200].find((one) => span / (30.4 * DAY) / one <= most), first = new Date(shown(from) * 1000);
      const month = (date) => every < 12 ? `${MONTHS[date.getUTCMonth()]} ${date.getUTCFullYear()}` : String(date.getUTCFullYear());
      for (let n = Math.ceil((12 * first.getUTCFullYear() + first.getUTCMonth()) / every) * every, at = 0; at <= to + DAY; n += every) add(at = Date.UTC(2000, n - 24000) / 1000, month);
      return found;
    }

    function draw(width = surface.clientWidth) {
      panels = options.panels(...range, width);
      const [from, to] = range, axes = panels.map((one) => axisRange(one.layers, one.fitted || fit)), ticks = axes.map(valueTicks);
      const left = Math.round(12 + 6.8 * Math.max(...ticks.flat().map((tick) => format(tick).length))), right = width - RIGHT, parts = [];
      const x = (time) => Math.round(10 * (left + (time - from) / (to - from) * (right - left))) / 10;
      let top = TOP;
      scale = { left, right, x, panels: panels.map((panel, n) => {
        const [low, high] = axes[n], bottom = top + panel.height;
        const y = (value) => Math.round(10 * Math.min(1e4, Math.max(-1e4, bottom - (value - low) / (high - low) * panel.height))) / 10;
        for (const tick of ticks[n]) parts.push(node("line", { class: "grid", x1: left, x2: right, y1: y(tick), y2: y(tick) }), node("text", { class: "tick", x: left - 6, y: y(tick) + 4 }, format(tick)));
        // A picture in the picture cuts off what lies outside of the panel.
        const inside = node("svg", { x: left, y: top, width: right - left, height: panel.height, viewBox: `${left} ${top} ${right - left} ${panel.height}` });
        for (const { form, kind, points } of panel.layers) inside.append(node("path", { class: kind, d: PATHS[form](points, x, y, [left, right]) }));
        for (const { kind, points, label } of panel.layers.filter((one) => one.label)) inside.append(node("text", { class: `${kind}-name`, x: right - 4, y: y(points[0][0]) - 4 }, label));
        parts.push(inside, node("text", { class: "unit", x: 0, y: n ? top - 9 : 13 }, panel.title));
        const found = { y, top, bottom, value: (pixel) => low + (bottom - pixel) / panel.height * (high - low) };
        top = bottom + BETWEEN;
        return found;
      }) };
      const bottom = top - BETWEEN;
      for (const [time, label] of dateTicks(range, Math.max(2, Math.floor((right - left) / 84)))) {
        const last = x(time) > right - 34, first = x(time) < left + 14;
        parts.unshift(node("line", { class: "grid", x1: x(time), x2: x(time), y1: TOP, y2: bottom + 4 }));
        parts.push(node("text", { class: `date${last ? " last" : first ? " first" : ""}`, x: last ? right + 4 : first ? left : x(time), y: bottom + 18 }, label));
      }
      parts.push(node("text", { class: "tick", x: right, y: 13 }, zone), ...markNodes(x, bottom), cursor = node("g"));
      surface.replaceChildren(node("svg", { class: "picture", viewBox: `0 0 ${width} ${bottom + BOTTOM}`, "aria-hidden": "true" }, ...parts));
      for (const [button, from] of buttons) button.setAttribute("aria-pressed", String(Boolean(from === null ? range === extent : range[0] === from && range[1] === snapped(extent[1], Math.ceil))));
    }

    // Lines of the marks in view; names that would overlap are merged: 3–5.
    function markNodes(x, bottom) {
      const parts = [], names = [];
      for (const [time, kind, name] of marks.filter(([time]) => range[0] <= time && time <= range[1])) {
        const at = x(time), last = names.at(-1);
        parts.push(node("line", { class: `mark ${kind}`, x1: at, x2: at, y1: TOP - 2, y2: bottom }));
        if (last && at - last.at < 6 + 4 * (last.name.length + name.length)) last.name = `${last.name.split("–")[0]}–${name.split("–").at(-1)}`;
        else names.push({ at, kind, name });
      }
      return [...parts, ...names.map(({ at, kind, name }) => node("text", { class: `mark-name ${kind}`, x: at, y: TOP - 6 }, name))];
    }

    // The observation closest to a place: among those near in time the one with the closest value; else the next in time.
    function nearest(px, py, most) {
      const { left, right, x, panels: [main] } = scale, second = (range[1] - range[0]) / (right - left);
      const time = range[0] + (px - left) * second, near = main.value(py);
      let found = null, least = Infinity;
      for (let i = lower(time - NEAR * second); i < times.length && times[i] <= time + NEAR * second; i++) {
        const distance = Math.hypot(x(times[i]) - px, main.y(panels[0].value(i, near)) - py);
        if (distance < least) { least = distance; found = i; }
      }
      if (most) return least <= most ? found : null;
      const after = lower(time), next = [after - 1, after].filter((i) => times[i] >= range[0] && times[i] <= range[1]);
      return found ?? next.sort((a, b) => Math.abs(times[a] - time) - Math.abs(times[b] - time))[0] ?? null;
    }

    // Answer for an observation; `py` is where the pointer is, undefined for keys.
    function point(i, py) {
      if (i === null) { tip.hidden = true; current = null; cursor.replaceChildren(); return; }
      const near = py === undefined ? undefined : scale.panels[0].value(py), value = panels[0].value(i, near), at = scale.x(times[i]);
      const rings = scale.panels.flatMap(({ y }, n) => { const v = panels[n].value(i, near); return Number.isFinite(v) ? [node("circle", { class: "here", cx: at, cy: y(v), r: 5 })] : []; });
      cursor.replaceChildren(node("line", { class: "here", x1: at, x2: at, y1: TOP, y2: scale.panels.at(-1).bottom }), ...rings);
      const [first, ...rest] = options.describe(i, value), key = `${i} ${value}`;
      if (current?.key !== key || tip.hidden) {
        tip.replaceChildren(make("strong", { textContent: first }), ...rest.map((line) => make("div", { textContent: line })), make("a", { href: options.link(i), textContent: "open the run", tabIndex: -1 }));
      }
      current = { i, key };
      tip.hidden = false;
      const before = at > surface.clientWidth / 2, high = scale.panels[0].y(value) - tip.offsetHeight / 2;
      tip.style.left = before ? "auto" : `${at + 12}px`;
      tip.style.right = before ? `${surface.clientWidth - at + 12}px` : "auto";
      tip.style.top = `${surface.offsetTop + Math.max(0, Math.min(high, surface.clientHeight - tip.offsetHeight))}px`;
    }

    function keep(name, value) {
      const state = new URLSearchParams(location.hash.slice(1));
      if (value) state.set(name, value); else state.delete(name);
      history.replaceState(null, "", state.size ? `#${state}` : location.pathname + location.search);
    }
    // Whole days from three days on, so that the address is exact.
    function show(from, to) {
      const middle = (from + to) / 2, half = Math.max(MIN_SPAN, to - from) / 2, days = 2 * half >= 3 * DAY;
      range = days ? [snapped(from, Math.floor), snapped(to, Math.ceil)] : [middle - half, middle + half];
      if (range[0] <= extent[0] && range[1] >= extent[1]) range = extent;
      keep("from", range === extent ? "" : days ? text(shown(range[0])).slice(0, 10) : text(shown(range[0])));
      keep("to", range === extent ? "" : days ? text(shown(range[1] - 1)).slice(0, 10) : text(shown(range[1])));
      point(null);
      draw();
    }
    const showAll = () => show(...extent);
    function zoom(factor) {
      const middle = current ? times[current.i] : (range[0] + range[1]) / 2, share = (middle - range[0]) / (range[1] - range[0]), span = factor * (range[1] - range[0]);
      show(Math.max(extent[0], middle - share * span), Math.min(extent[1], middle + (1 - share) * span));
    }
    function pan(seconds) {
      const by = Math.min(Math.max(seconds, Math.min(0, extent[0] - range[0])), Math.max(0, extent[1] - range[1]));
      if (Math.abs(by) >= 60) show(range[0] + by, range[1] + by);
    }
    function restore() {
      const state = new URLSearchParams(location.hash.slice(1)), moment = (value, end) => utc(Date.parse(value?.length > 10 ? `${value}Z` : value) / 1000 + (value?.length > 10 ? 0 : end));
      const from = moment(state.get("from"), 0), to = moment(state.get("to"), DAY);
      range = [Number.isFinite(from) ? from : extent[0], Number.isFinite(to) ? to : extent[1]];
      if (range[1] - range[0] < MIN_SPAN || (range[0] === extent[0] && range[1] === extent[1])) range = extent;
      fit = state.get("y") === "fit";
      options.restore?.(state);
    }

    // Move the observation of the keys; the view follows.
    const step = (by) => go(current ? current.i + by : by > 0 ? lower(range[0]) : lower(range[1]) - 1);
    function go(wanted) {
      const i = Math.min(times.length - 1, Math.max(0, wanted));
      const span = range[1] - range[0];
      if (times[i] < range[0]) pan(times[i] - range[0] - span / 2); else if (times[i] > range[1]) pan(times[i] - range[1] + span / 2);
      point(i);
    }
    const KEYS = {
      ArrowRight: (e) => e.shiftKey ? pan((range[1] - range[0]) / 2) : step(1), ArrowLeft: (e) => e.shiftKey ? pan((range[0] - range[1]) / 2) : step(-1),
      PageDown: () => step(10), PageUp: () => step(-10), Home: () => go(0), End: () => go(times.length - 1),
      "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), 0: showAll, Escape: () => point(null), Enter: () => { if (current) location.href = options.link(current.i); },
    };
    surface.addEventListener("keydown", (event) => {
      if (!KEYS[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      tip.setAttribute("role", "status");
      KEYS[event.key](event);
    });

    const where = (event) => { const box = surface.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
    const time = (px) => range[0] + (Math.min(scale.right, Math.max(scale.left, px)) - scale.left) / (scale.right - scale.left) * (range[1] - range[0]);
    surface.addEventListener("pointerdown", (event) => {
      if (event.button === 0 && event.isPrimary) pressed = { from: where(event)[0], moved: false, pan: event.shiftKey };
    });
    surface.addEventListener("pointermove", (event) => {
      const [px, py] = where(event);
      if (pressed && !pressed.moved && Math.abs(px - pressed.from) > 4) { pressed.moved = true; surface.setPointerCapture(event.pointerId); point(null); }
      if (!pressed?.moved) {
        tip.removeAttribute("role");
        if (event.pointerType !== "touch") point(px < scale.left - NEAR || py < TOP - NEAR ? null : nearest(px, py), py);
      } else if (!pressed.pan) {
        const [a, b] = [pressed.from, px].map((one) => Math.min(scale.right, Math.max(scale.left, one))).sort((a, b) => a - b);
        cursor.replaceChildren(node("rect", { class: "chosen", x: a, width: b - a, y: TOP, height: scale.panels.at(-1).bottom - TOP }));
      }
    });
    surface.addEventListener("pointerup", (event) => {
      const done = pressed, [px, py] = where(event);
      pressed = null;
      if (!done) return;
      if (done.moved && done.pan) return pan(time(done.from) - time(px));
      if (done.moved) return show(...[time(done.from), time(px)].sort((a, b) => a - b));
      tip.classList.toggle("held", event.pointerType === "touch");
      if (event.pointerType === "touch") return point(nearest(px, py), py);
      const i = nearest(px, py, NEAR);
      if (i === null) return;
      if (event.ctrlKey || event.metaKey) open(options.link(i)); else location.href = options.link(i);
    });
    surface.addEventListener("pointercancel", () => { pressed = null; cursor.replaceChildren(); });
    surface.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch" && !pressed) point(null); });
    surface.addEventListener("blur", () => { if (!tip.classList.contains("held")) point(null); });
    surface.addEventListener("dblclick", showAll);

    // A picture for a ticket: styles become attributes, because the style sheet is not part of it.
    function save() {
      const source = surface.querySelector("svg"), copy = source.cloneNode(true), { width, height } = source.viewBox.baseVal, made = [...copy.querySelectorAll("*")];
      [...source.querySelectorAll("*")].forEach((one, i) => { const style = getComputedStyle(one); for (const name of STYLES) made[i].setAttribute(name, style.getPropertyValue(name)); });
      for (const [name, value] of Object.entries({ xmlns: "http://www.w3.org/2000/svg", width, height })) copy.setAttribute(name, value);
      copy.prepend(node("rect", { width, height, fill: getComputedStyle(document.body).backgroundColor }));
      const image = new Image(), canvas = make("canvas", { width: 2 * width, height: 2 * height });
      image.addEventListener("load", () => {
        canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
        make("a", { href: canvas.toDataURL("image/png"), download: `${document.title.replace(/[^\w.-]+/g, "-").slice(0, 100)}.png` }).click();
      });
      image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(copy))}`;
    }

    function button(label, title, action) {
      const made = make("button", { type: "button", textContent: label, title });
      if (title) made.setAttribute("aria-label", title);
      made.addEventListener("click", action);
      tools.append(made);
      return made;
    }
    for (const [label, span] of RANGES.filter(([, span]) => span < extent[1] - extent[0])) buttons.push([button(label, "", () => show(extent[1] - span, extent[1])), snapped(extent[1] - span, Math.floor)]);
    buttons.push([button("All", "", showAll), null]);
    button("‹", "Earlier", () => pan((range[0] - range[1]) / 2));
    button("›", "Later", () => pan((range[1] - range[0]) / 2));
    button("−", "Zoom out", () => zoom(2));
    button("+", "Zoom in", () => zoom(0.5));
    const fitting = button("Fit values", "Fit the axis to the values in view, not from zero", () => { fit = !fit; keep("y", fit ? "fit" : ""); fitting.setAttribute("aria-pressed", String(fit)); draw(); });
    button("Save picture", "", save);
    tools.setAttribute("role", "group");
    tools.setAttribute("aria-label", "Range of the chart");
    surface.setAttribute("role", "application");
    surface.setAttribute("aria-roledescription", "chart");
    surface.setAttribute("aria-label", options.name);

    const refresh = () => { restore(); fitting.setAttribute("aria-pressed", String(fit)); draw(); };
    place.replaceChildren(tools, surface, tip);
    place.className = "chart";
    refresh();
    let width = surface.clientWidth;
    new ResizeObserver(() => { if (surface.clientWidth !== width) { width = surface.clientWidth; point(null); draw(); } }).observe(surface);
    addEventListener("hashchange", refresh);
    addEventListener("beforeprint", () => { point(null); draw(PRINTED_WIDTH); });
    addEventListener("afterprint", () => draw());
    // Pixels of an observation, of its value `near` a value if that is given.
    const placeOf = (i, near) => [scale.x(times[i]), scale.panels[0].y(panels[0].value(i, near))];
    return { times, tools, range: () => range, shown: () => panels, place: placeOf, link: options.link, draw: () => draw(), show, keep };
  };
})();
