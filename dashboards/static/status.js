"use strict";
// A page that was not rebuilt must not look current: systems whose next session should have started by now are overdue.
(() => {
  const late = [...document.querySelectorAll("[data-due]")].filter((one) => Date.now() / 1000 > Number(one.dataset.due));
  for (const one of late) {
    for (const note of one.querySelectorAll("[data-overdue]")) note.hidden = false;
    for (const note of one.querySelectorAll("[data-received]")) note.hidden = true;
    for (const note of one.querySelectorAll("[data-calm]")) note.classList.remove("calm");
  }
  if (!late.length) return;
  document.getElementById("overdue-count").textContent = late.length;
  document.getElementById("overdue").hidden = false;
})();
