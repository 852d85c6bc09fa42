"use strict";
// Heat maps: one Tab stop per map, arrow keys between cells; cells excluded by the filter of the page are pale.
(() => {
  const maps = [...document.querySelectorAll("table.matrix")];
  const STEPS = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };
  for (const map of maps) {
    const cells = [...map.tBodies[0].rows].map((row) => [...row.cells].map((cell) => cell.querySelector("a")));
    cells.flat().filter(Boolean).forEach((link, i) => { link.tabIndex = i ? -1 : 0; });
    map.addEventListener("focusin", ({ target }) => {
      map.querySelector("a[tabindex='0']").tabIndex = -1;
      target.tabIndex = 0;
    });
    map.addEventListener("keydown", (event) => {
      const step = STEPS[event.key];
      if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      event.stopPropagation();
      let y = cells.findIndex((row) => row.includes(document.activeElement)), x = cells[y]?.indexOf(document.activeElement);
      // Skip cells without a case.
      do { y += step[0]; x += step[1]; } while (cells[y] && x < cells[y].length && x >= 0 && !cells[y][x]);
      cells[y]?.[x]?.focus();
    });
  }
  const table = document.querySelector("table.filterable");
  if (!table) return;
  const links = maps.flatMap((map) => [...map.querySelectorAll("a")]);
  table.addEventListener("filtered", () => {
    const shown = new Set([...table.tBodies[0].rows].filter((row) => !row.hidden).map((row) => row.querySelector("a").href));
    for (const link of links) link.parentElement.classList.toggle("pale", !shown.has(link.href));
  });
  table.dispatchEvent(new Event("filtered"));
})();
