"use strict";
// Tables that are sorted by click or key on a header; tables and lists of folds (.row) that are filtered by text and
// choices. The address holds the state.
(() => {
  const state = new URLSearchParams(location.hash.slice(1));
  const keep = (name, value) => {
    if (value) state.set(name, value); else state.delete(name);
    history.replaceState(null, "", state.size ? `#${state}` : location.pathname + location.search);
  };
  const key = (row, column) => {
    const cell = row.cells[column], raw = cell.dataset.sort ?? cell.textContent.trim();
    const number = Number(raw);
    return raw === "" || raw === "–" ? null : Number.isNaN(number) ? raw : number;
  };
  const compare = (a, b) => typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });

  function sort(table, column, descending) {
    const rows = [...table.tBodies[0].rows].map((row) => [key(row, column), row]);
    // Rows without a value are last in both directions.
    rows.sort(([a], [b]) => a === null || b === null ? (a === null) - (b === null) : descending ? compare(b, a) : compare(a, b));
    table.tBodies[0].append(...rows.map(([, row]) => row));
    [...table.tHead.rows[0].cells].forEach((cell, i) => {
      if (i === column) cell.setAttribute("aria-sort", descending ? "descending" : "ascending"); else cell.removeAttribute("aria-sort");
    });
  }

  for (const table of document.querySelectorAll("table.sortable")) {
    [...table.tHead.rows[0].cells].forEach((cell, column) => {
      if (cell.dataset.sort === "no") return;
      const button = document.createElement("button");
      button.type = "button";
      button.append(...cell.childNodes);
      cell.append(button);
      button.addEventListener("click", () => {
        const descending = cell.getAttribute("aria-sort") === "ascending" || (!cell.hasAttribute("aria-sort") && cell.classList.contains("number"));
        sort(table, column, descending && cell.getAttribute("aria-sort") !== "descending");
        keep("sort", `${column}${cell.getAttribute("aria-sort") === "descending" ? "d" : "a"}`);
      });
    });
    const wanted = /^(\d+)([ad])$/.exec(state.get("sort") ?? "");
    if (wanted && Number(wanted[1]) < table.tHead.rows[0].cells.length) sort(table, Number(wanted[1]), wanted[2] === "d");
  }

  const table = document.querySelector(".filterable"), tools = document.querySelector(".tools");
  if (!table || !tools) return;
  tools.hidden = false;
  const inputs = [...tools.querySelectorAll("[data-filter]")], count = tools.querySelector("output");
  // In their present order.
  const listed = () => table.tBodies ? [...table.tBodies[0].rows] : [...table.querySelectorAll(".row")];
  const rows = listed(), folds = rows.map((row) => row.querySelector(":scope > details")), open = folds.map((fold) => fold?.open);
  // MPI-IO and MPIIO, NetCDF-4 and NETCDF4 are the same words.
  const plain = (text) => text.toLowerCase().replaceAll("-", "");
  const words = rows.map((row) => plain(row.textContent));
  function filter() {
    const active = inputs.some((input) => input.value);
    let shown = 0;
    rows.forEach((row, i) => {
      row.hidden = !inputs.every((input) => {
        const name = input.dataset.filter, value = input.value;
        if (!value) return true;
        const own = row.dataset[name] ?? "";
        if (name === "words") return plain(value).split(/\s+/).every((word) => words[i].includes(word));
        // A row can have several values, for example a series in an open finding that is suspected, too.
        return own.split("\n").includes(value);
      });
      shown += !row.hidden;
      // A filter opens what it chooses.
      if (folds[i]) folds[i].open = active ? !row.hidden : open[i];
    });
    count.textContent = `${shown} of ${rows.length}`;
    table.dispatchEvent(new Event("filtered"));
  }
  for (const input of inputs) {
    input.value = state.get(input.dataset.filter) ?? "";
    for (const event of ["input", "change"]) input.addEventListener(event, () => { keep(input.dataset.filter, input.value); filter(); });
  }
  // "/" focuses the filter, arrow keys move between rows.
  document.addEventListener("keydown", (event) => {
    if (event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/") { event.preventDefault(); inputs[0].focus(); }
    const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 }[event.key];
    if (!step) return;
    const present = listed().filter((row) => !row.hidden), link = (row) => row?.querySelector("a, summary");
    const links = present.map(link).filter(Boolean), at = links.indexOf(link(present.find((row) => row.contains(document.activeElement))));
    const next = links[at === -1 ? (step > 0 ? 0 : links.length - 1) : at + step];
    if (next && (at !== -1 || table.contains(document.activeElement) || event.key === "j" || event.key === "k")) { event.preventDefault(); next.focus(); }
  });
  filter();
})();
