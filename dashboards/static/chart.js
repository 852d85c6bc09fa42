"use strict";
// Interactive chart of values over time as SVG, in the style classes of the pictures that drawing.py makes.
//
// new TimeChart(place, {
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
// })
//
// The range is in the address: #from=2009-03-01&to=2009-04-01, days in the zone of the site, both inclusive; shorter ranges have times.
const TimeChart = (() => {
  const DAY = 86400, MIN_SPAN = 3600, RANGES = [["30 d", 30 * DAY], ["90 d", 90 * DAY], ["1 y", 365 * DAY]];
  // Pixels: margins; reach of the pointer; movement that is a drag; width of a printed chart.
  const TOP = 36, BOTTOM = 24, RIGHT = 8, BETWEEN = 28, NEAR = 14, DRAG = 4, PRINTED_WIDTH = 720;
  const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
  // Of a saved picture.
  const STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin", "opacity", "paint-order",
    "font-family", "font-size", "font-weight", "text-anchor"];
  const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
  const format = (value) => Number(value.toPrecision(4)).toLocaleString("en");

  // Path data of a layer of each form, with scales from data to pixels; a line without length is a dot (round caps).
  const path = (points, draw) => points.map((point, i) => point ? draw(point, i) : "").join("");
  const PATHS = {
    line: (points, x, y) => path(points, ([a, b], i) => i && points[i - 1] ? `L${x(a)},${y(b)}` : `M${x(a)},${y(b)}h0`),
    dots: (points, x, y) => path(points, ([a, b]) => `M${x(a)},${y(b)}h0`),
    rings: (points, x, y) => path(points, ([a, b]) => `M${x(a)},${y(b)}m-5,0a5,5 0 1 0 10,0a5,5 0 1 0 -10,0`),
    bars: (points, x, y) => path(points, ([a, low, high]) => `M${x(a)},${y(low)}V${y(high)}`),
    areas: (points, x, y) => path(points, ([a, la, ha, b, lb, hb]) => `M${x(a)},${y(la)}V${y(ha)}L${x(b)},${y(hb)}V${y(lb)}Z`),
    rules: (points, x, y, [left, right]) => path(points, ([value]) => `M${left},${y(value)}H${right}`),
  };
  // Values of a point that the axis must contain.
  const VALUES = { line: (p) => [p[1]], dots: (p) => [p[1]], rings: () => [], bars: (p) => p.slice(1), areas: () => [], rules: (p) => p };

  function node(name, attributes = {}, ...children) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }
  const element = (name, properties, attributes = {}) => {
    const made = Object.assign(document.createElement(name), properties);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  };

  // Lowest and highest value of an axis: from zero to above everything, or around the data. Of data only what is in view counts, not the
  // next point outside of it, to which a line leads.
  function axisRange(layers, fitted, [from, to]) {
    let low = Infinity, high = -Infinity;
    for (const { form, points, data } of layers.filter((one) => one.data || !fitted)) {
      const counted = points.filter((point) => point && (!data || (point[0] >= from && point[0] <= to)));
      for (const value of counted.flatMap(VALUES[form])) { low = Math.min(low, value); high = Math.max(high, value); }
    }
    if (!(high >= low)) return [0, 1];
    if (!fitted) return [Math.min(0, low), high > 0 ? 1.08 * high : 1];
    const room = 0.08 * (high - low) || 0.05 * Math.abs(high) || 1;
    return [low >= 0 ? Math.max(0, low - room) : low - room, high + room];
  }

  // Four to seven round values.
  function valueTicks([low, high]) {
    const size = 10 ** Math.floor(Math.log10((high - low) / 4)), found = [];
    const step = size * [1, 2, 2.5, 5, 10].find((m) => m * size >= 0.16 * (high - low));
    for (let n = Math.ceil(low / step - 1e-9); n * step <= high; n++) found.push(n * step);
    return found;
  }

  // Times as the site shows them, whatever the zone of the reader: `shown` seconds are local times as if they were UTC.
  class Zone {
    constructor(offsets) { this.offsets = offsets; }

    offset(seconds) { return this.offsets.findLast(([from]) => from <= seconds)?.[1] ?? this.offsets[0][1]; }
    shown(seconds) { return seconds + this.offset(seconds); }
    utc(shown) { return shown - this.offset(shown - this.offset(shown)); }
    text(seconds) { return new Date(this.shown(seconds) * 1000).toISOString().slice(0, 16); }
    midnight(seconds, round) { return this.utc(round(this.shown(seconds) / DAY) * DAY); }

    // Epoch s of a day (its end, if `end` is a day) or of a time; NaN if it is neither.
    parse(value, end) {
      const isTime = value?.length > 10;
      return this.utc(Date.parse(isTime ? `${value}Z` : value) / 1000 + (isTime ? 0 : end));
    }

    // [[epoch s, label], …] at round local times, at most `most`.
    ticks([from, to], most) {
      const span = to - from, start = this.shown(from), found = [];
      const add = (shown, label) => { const at = this.utc(shown); if (at >= from && at <= to) found.push([at, label(new Date(shown * 1000))]); };
      const day = (date) => `${date.getUTCDate()} ${MONTHS[date.getUTCMonth()]}${found.length ? "" : ` ${date.getUTCFullYear()}`}`;
      const hour = (date) => date.getUTCHours() ? date.toISOString().slice(11, 16) : day(date);
      const [unit, counts, label] = span <= 2.5 * DAY ? [3600, [1, 2, 3, 6, 12, 24], hour] : [DAY, [1, 2, 7, 14], day];
      const step = unit * counts.find((one) => span / unit / one <= most);
      if (step) {
        for (let at = Math.ceil(start / step) * step; at <= to + DAY; at += step) add(at, label);
        return found;
      }
      const every = [1, 2, 3, 6, 12, 24, 60, 120, 1200].find((one) => span / (30.4 * DAY) / one <= most), first = new Date(start * 1000);
      const month = (date) => `${every < 12 ? `${MONTHS[date.getUTCMonth()]} ` : ""}${date.getUTCFullYear()}`;
      for (let n = Math.ceil((12 * first.getUTCFullYear() + first.getUTCMonth()) / every) * every, at = 0; at <= to + DAY; n += every) {
        at = Date.UTC(2000, n - 24000) / 1000;
        add(at, month);
      }
      return found;
    }
  }

  return class TimeChart {
    constructor(place, options) {
      Object.assign(this, options, { zoneOfSite: new Zone(options.offsets), extent: [options.times[0] - DAY / 2, options.times.at(-1) + DAY / 2] });
      this.tools = element("div", { className: "ranges" }, { role: "group", "aria-label": "Range of the chart" });
      this.surface = element("div", { className: "surface", tabIndex: 0 }, { role: "application", "aria-roledescription": "chart", "aria-label": options.name });
      this.tip = element("div", { className: "tip", hidden: true });
      this.current = this.pressed = null;
      this.addButtons();
      this.addKeys();
      this.addPointer();
      place.className = "chart";
      place.replaceChildren(this.tools, this.surface, this.tip);
      this.refresh();
      this.follow();
    }

    // Redraw when the address, the width or the medium changes.
    follow() {
      let width = this.surface.clientWidth;
      new ResizeObserver(() => { if (this.surface.clientWidth !== width) { width = this.surface.clientWidth; this.point(null); this.draw(); } }).observe(this.surface);
      addEventListener("hashchange", () => this.refresh());
      addEventListener("beforeprint", () => { this.point(null); this.draw(PRINTED_WIDTH); });
      addEventListener("afterprint", () => this.draw());
    }

    // Drawing

    draw(width = this.surface.clientWidth) {
      this.drawn = this.panels(...this.range, width);
      const axes = this.drawn.map((one) => axisRange(one.layers, one.fitted || this.fit, this.range)), ticks = axes.map(valueTicks), [from, to] = this.range;
      const left = Math.round(12 + 6.8 * Math.max(...ticks.flat().map((tick) => format(tick).length))), right = width - RIGHT, parts = [];
      const x = (time) => Math.round(10 * (left + (time - from) / (to - from) * (right - left))) / 10;
      this.scale = { left, right, x, panels: [] };
      this.drawn.forEach((panel, n) => {
        this.scale.panels.push(this.panelScale(panel, n, axes[n]));
        parts.push(...this.panelNodes(panel, this.scale.panels[n], ticks[n]));
      });
      const bottom = this.scale.panels.at(-1).bottom;
      this.cursor = node("g");
      parts.push(node("text", { class: "tick", x: right, y: 13 }, this.zone), ...this.markNodes(bottom), this.cursor);
      const picture = { class: "picture", viewBox: `0 0 ${width} ${bottom + BOTTOM}`, "aria-hidden": "true" };
      this.surface.replaceChildren(node("svg", picture, ...this.dateNodes(bottom), ...parts));
      for (const [button, span] of this.choices) button.setAttribute("aria-pressed", String(span === null ? this.range === this.extent : this.isNewest(span)));
      this.fitting.setAttribute("aria-pressed", String(this.fit));
    }

    // Scale of values in both directions, and the edges of a panel.
    panelScale({ height }, n, [low, high]) {
      const top = n ? this.scale.panels[n - 1].bottom + BETWEEN : TOP, bottom = top + height;
      // Infinite ends of an area are outside of the panel.
      const y = (value) => Math.round(10 * clamp(bottom - (value - low) / (high - low) * height, -1e4, 1e4)) / 10;
      return { top, bottom, y, value: (pixel) => low + (bottom - pixel) / height * (high - low) };
    }

    panelNodes({ title, height, layers }, { top, y }, ticks) {
      const { left, right, x } = this.scale, size = { x: left, y: top, width: right - left, height };
      // A picture in the picture cuts off what lies outside of the panel.
      const inside = node("svg", { ...size, viewBox: Object.values(size).join(" ") });
      for (const { form, kind, points } of layers) inside.append(node("path", { class: kind, d: PATHS[form](points, x, y, [left, right]) }));
      for (const { kind, points, label } of layers.filter((one) => one.label)) {
        inside.append(node("text", { class: `limit-name ${kind}-name`, x: right - 4, y: y(points[0][0]) - 4 }, label));
      }
      const lines = ticks.flatMap((tick) => [
        node("line", { class: "grid", x1: left, x2: right, y1: y(tick), y2: y(tick) }), node("text", { class: "tick", x: left - 6, y: y(tick) + 4 }, format(tick)),
      ]);
      return [...lines, inside, node("text", { class: "unit", x: 0, y: top === TOP ? 13 : top - 9 }, title)];
    }

    dateNodes(bottom) {
      const { left, right, x } = this.scale;
      let free = -Infinity;
      return this.zoneOfSite.ticks(this.range, Math.max(2, Math.floor((right - left) / 72))).flatMap(([time, label]) => {
        const at = x(time), [kind, edge] = at > right - 34 ? ["date last", right + 4] : ["date", at];
        const width = 6.5 * label.length, start = edge - width / (kind === "date" ? 2 : 1), fits = start >= free;
        if (fits) free = start + width + 6;
        const text = node("text", { class: kind, x: edge, y: bottom + 18 }, label);
        return [node("line", { class: "grid", x1: at, x2: at, y1: TOP, y2: bottom + 4 }), ...(fits ? [text] : [])];
      });
    }

    // Lines of the marks in view; names that would overlap are merged: 3–5.
    markNodes(bottom) {
      const lines = [], names = [];
      for (const [time, kind, name] of this.marks.filter(([time]) => this.range[0] <= time && time <= this.range[1])) {
        const at = this.scale.x(time), last = names.at(-1);
        lines.push(node("line", { class: `mark ${kind}`, x1: at, x2: at, y1: TOP - 2, y2: bottom }));
        if (last && at - last.at < 6 + 4 * (last.name.length + name.length)) last.name = `${last.name.split("–")[0]}–${name.split("–").at(-1)}`;
        else names.push({ at, kind, name });
      }
      return [...lines, ...names.map(({ at, kind, name }) => node("text", { class: `mark-name ${kind}`, x: at, y: TOP - 6 }, name))];
    }

    // Answers

    // Answer for observation `i`, or none for null; `py` is where the pointer is, undefined for keys.
    point(i, py) {
      if (i === null) {
        this.tip.hidden = true;
        this.current = null;
        this.cursor?.replaceChildren();
        return;
      }
      const { x, panels } = this.scale, near = py === undefined ? undefined : panels[0].value(py), at = x(this.times[i]);
      const value = this.drawn[0].value(i, near), key = `${i} ${value}`;
      const rings = this.drawn.map((panel, n) => [panels[n], panel.value(i, near)]).filter(([, one]) => Number.isFinite(one));
      this.cursor.replaceChildren(
        node("line", { class: "here", x1: at, x2: at, y1: TOP, y2: panels.at(-1).bottom }),
        ...rings.map(([{ y }, one]) => node("circle", { class: "here", cx: at, cy: y(one), r: 5 })),
      );
      if (this.current?.key !== key) {
        const [first, ...rest] = this.describe(i, value);
        this.tip.replaceChildren(element("strong", { textContent: first }), ...rest.map((line) => element("div", { textContent: line })),
          element("a", { href: this.link(i), textContent: "open the run", tabIndex: -1 }));
      }
      this.current = { i, key };
      this.tip.hidden = false;
      this.placeTip(at, panels[0].y(value));
    }
    placeTip(at, middle) {
      const { tip, surface } = this, isLeft = at > surface.clientWidth / 2;
      tip.style.left = isLeft ? "auto" : `${at + 12}px`;
      tip.style.right = isLeft ? `${surface.clientWidth - at + 12}px` : "auto";
      tip.style.top = `${surface.offsetTop + clamp(middle - tip.offsetHeight / 2, 0, Math.max(0, surface.clientHeight - tip.offsetHeight))}px`;
    }

    // Index of the first observation not before a time.
    first(time) {
      let a = 0, b = this.times.length;
      while (a < b) { const m = (a + b) >> 1; if (this.times[m] < time) a = m + 1; else b = m; }
      return a;
    }
    time(px) {
      const { left, right } = this.scale;
      return this.range[0] + (clamp(px, left, right) - left) / (right - left) * (this.range[1] - this.range[0]);
    }
    // Pixels of observation `i`, of its value next to `near` if that is given.
    place(i, near) { return [this.scale.x(this.times[i]), this.scale.panels[0].y(this.drawn[0].value(i, near))]; }

    // The observation next to a place, at most `NEAR` pixels from it; null if there is none.
    closest(px, py) {
      const near = this.scale.panels[0].value(py), reach = NEAR * (this.range[1] - this.range[0]) / (this.scale.right - this.scale.left);
      let found = null, least = Infinity;
      for (let i = this.first(this.time(px) - reach); this.times[i] <= this.time(px) + reach; i++) {
        const [x, y] = this.place(i, near), distance = Math.hypot(x - px, y - py);
        if (distance < least) { least = distance; found = i; }
      }
      return { i: found, isHit: least <= NEAR };
    }
    // The same anywhere in the chart: the next in time if none is near.
    nearest(px, py) {
      const { i } = this.closest(px, py), time = this.time(px), after = this.first(time);
      const next = [after - 1, after].filter((one) => this.times[one] >= this.range[0] && this.times[one] <= this.range[1]);
      return i ?? next.sort((a, b) => Math.abs(this.times[a] - time) - Math.abs(this.times[b] - time))[0] ?? null;
    }

    // Range

    // Whole days from three days on, so that the address is exact.
    show(from, to) {
      const middle = (from + to) / 2, half = Math.max(MIN_SPAN, to - from) / 2, isDays = 2 * half >= 3 * DAY, zone = this.zoneOfSite;
      this.range = isDays ? [zone.midnight(from, Math.floor), zone.midnight(to, Math.ceil)] : [middle - half, middle + half];
      if (this.range[0] <= this.extent[0] && this.range[1] >= this.extent[1]) this.range = this.extent;
      const isAll = this.range === this.extent, texts = [zone.text(this.range[0]), zone.text(this.range[1] - (isDays ? 1 : 0))];
      ["from", "to"].forEach((name, n) => this.keep(name, isAll ? "" : texts[n].slice(0, isDays ? 10 : 16)));
      this.point(null);
      this.draw();
    }
    showAll() { this.show(...this.extent); }
    showNewest(span) { this.show(this.extent[1] - span, this.extent[1]); }
    isNewest(span) {
      const [from, to] = this.extent, zone = this.zoneOfSite;
      return from < to - span && this.range[0] === zone.midnight(to - span, Math.floor) && this.range[1] === zone.midnight(to, Math.ceil);
    }
    zoom(factor) {
      const [from, to] = this.range, middle = this.current ? this.times[this.current.i] : (from + to) / 2;
      this.show(Math.max(this.extent[0], middle - factor * (middle - from)), Math.min(this.extent[1], middle + factor * (to - middle)));
    }
    // Move the view, not beyond the first and the last observation.
    pan(seconds) {
      const [from, to] = this.range, by = clamp(seconds, Math.min(0, this.extent[0] - from), Math.max(0, this.extent[1] - to));
      if (Math.abs(by) >= 60) this.show(from + by, to + by);
    }
    panViews(views) { this.pan(views * (this.range[1] - this.range[0])); }

    // Store a value in the address, or remove an empty one.
    keep(name, value) {
      const state = new URLSearchParams(location.hash.slice(1));
      if (value) state.set(name, value); else state.delete(name);
      history.replaceState(null, "", state.size ? `#${state}` : location.pathname + location.search);
    }
    // Read the address.
    refresh() {
      const state = new URLSearchParams(location.hash.slice(1)), from = this.zoneOfSite.parse(state.get("from"), 0), to = this.zoneOfSite.parse(state.get("to"), DAY);
      this.range = [Number.isFinite(from) ? from : this.extent[0], Number.isFinite(to) ? to : this.extent[1]];
      if (this.range[1] - this.range[0] < MIN_SPAN || (!Number.isFinite(from) && !Number.isFinite(to))) this.range = this.extent;
      this.fit = state.get("y") === "fit";
      this.restore?.(state);
      this.point(null);
      this.draw();
    }

    // Input

    // Go to an observation; the view follows.
    go(wanted) {
      const i = clamp(wanted, 0, this.times.length - 1), [from, to] = this.range, time = this.times[i];
      if (time < from) this.pan(time - from - (to - from) / 2); else if (time > to) this.pan(time - to + (to - from) / 2);
      this.point(i);
    }
    step(by) { this.go(this.current ? this.current.i + by : by > 0 ? this.first(this.range[0]) : this.first(this.range[1]) - 1); }

    addKeys() {
      const keys = {
        ArrowRight: (isShift) => isShift ? this.panViews(0.5) : this.step(1), ArrowLeft: (isShift) => isShift ? this.panViews(-0.5) : this.step(-1),
        PageDown: () => this.step(10), PageUp: () => this.step(-10), Home: () => this.go(0), End: () => this.go(this.times.length - 1),
        "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), 0: () => this.showAll(), Escape: () => this.point(null),
        Enter: () => { if (this.current) location.href = this.link(this.current.i); },
      };
      this.surface.addEventListener("keydown", (event) => {
        if (!Object.hasOwn(keys, event.key) || event.ctrlKey || event.metaKey || event.altKey) return;
        event.preventDefault();
        // Screen readers announce what keys show, and not everything that the pointer passes over.
        this.tip.setAttribute("role", "status");
        keys[event.key](event.shiftKey);
      });
      this.surface.addEventListener("blur", () => { if (!this.tip.classList.contains("held")) this.point(null); });
    }

    addPointer() {
      const { surface } = this, on = (name, answer) => surface.addEventListener(name, (event) => {
        const box = surface.getBoundingClientRect();
        answer(event, event.clientX - box.left, event.clientY - box.top);
      });
      on("pointerdown", (event, px) => { if (event.button === 0 && event.isPrimary) this.pressed = { px, isDrag: false, isPan: event.shiftKey }; });
      on("pointermove", (event, px, py) => this.move(event, px, py));
      on("pointerup", (event, px, py) => this.release(event, px, py));
      on("pointercancel", () => { this.pressed = null; this.point(null); });
      on("pointerleave", (event) => { if (event.pointerType !== "touch" && !this.pressed) this.point(null); });
      on("dblclick", () => this.showAll());
    }
    move(event, px, py) {
      const { pressed, scale } = this;
      if (pressed && !pressed.isDrag && Math.abs(px - pressed.px) > DRAG) {
        pressed.isDrag = true;
        this.surface.setPointerCapture(event.pointerId);
        this.point(null);
      }
      if (pressed?.isDrag) {
        if (pressed.isPan) return;
        const [a, b] = [pressed.px, px].map((one) => clamp(one, scale.left, scale.right)).sort((a, b) => a - b);
        this.cursor.replaceChildren(node("rect", { class: "chosen", x: a, width: b - a, y: TOP, height: scale.panels.at(-1).bottom - TOP }));
      } else if (event.pointerType !== "touch") {
        this.tip.removeAttribute("role");
        this.point(px < scale.left - NEAR || py < TOP - NEAR ? null : this.nearest(px, py), py);
      }
    }
    // A drag zooms, with Shift it moves the view; a click opens the run, a tap shows the answer with a link.
    release(event, px, py) {
      const { pressed } = this, isTouch = event.pointerType === "touch";
      this.pressed = null;
      if (!pressed) return;
      if (pressed.isDrag && pressed.isPan) return this.pan(this.time(pressed.px) - this.time(px));
      if (pressed.isDrag) return this.show(...[this.time(pressed.px), this.time(px)].sort((a, b) => a - b));
      this.tip.classList.toggle("held", isTouch);
      if (isTouch) return this.point(this.nearest(px, py), py);
      const { i, isHit } = this.closest(px, py);
      if (isHit && (event.ctrlKey || event.metaKey)) open(this.link(i)); else if (isHit) location.href = this.link(i);
    }

    addButtons() {
      const add = (label, title, action) => {
        const made = element("button", { type: "button", textContent: label, title }, title ? { "aria-label": title } : {});
        made.addEventListener("click", action);
        this.tools.append(made);
        return made;
      };
      const shorter = RANGES.filter(([, span]) => span < this.extent[1] - this.extent[0]);
      this.choices = shorter.map(([label, span]) => [add(label, "", () => this.showNewest(span)), span]);
      this.choices.push([add("All", "", () => this.showAll()), null]);
      add("‹", "Earlier", () => this.panViews(-0.5));
      add("›", "Later", () => this.panViews(0.5));
      add("−", "Zoom out", () => this.zoom(2));
      add("+", "Zoom in", () => this.zoom(0.5));
      this.fitting = add("Fit values", "Fit the axis to the values in view, not from zero", () => { this.fit = !this.fit; this.keep("y", this.fit ? "fit" : ""); this.draw(); });
      add("Save picture", "", () => this.save());
    }

    // A picture for a ticket; styles become attributes, because the style sheet is not part of it.
    save() {
      this.point(null);
      const source = this.surface.querySelector("svg"), copy = source.cloneNode(true), { width, height } = source.viewBox.baseVal, made = copy.querySelectorAll("*");
      source.querySelectorAll("*").forEach((one, i) => { const style = getComputedStyle(one); for (const name of STYLES) made[i].setAttribute(name, style.getPropertyValue(name)); });
      for (const [name, value] of Object.entries({ width, height })) copy.setAttribute(name, value);
      copy.prepend(node("rect", { width, height, fill: getComputedStyle(document.body).backgroundColor }));
      const image = new Image(), canvas = element("canvas", { width: 2 * width, height: 2 * height });
      image.addEventListener("load", () => {
        canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
        element("a", { href: canvas.toDataURL("image/png"), download: `${document.title.replace(/[^\w.-]+/g, "-").slice(0, 100)}.png` }).click();
      });
      image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(copy))}`;
    }
  };
})();
