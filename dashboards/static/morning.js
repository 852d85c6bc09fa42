"use strict";
// A page that nobody made anew must not look like good news: systems that should have been heard of by now are silent.
(() => {
  const late = [...document.querySelectorAll("[data-due]")].filter((one) => Date.now() / 1000 > Number(one.dataset.due));
  for (const one of late) {
    for (const told of one.querySelectorAll("[data-silent]")) told.hidden = false;
    for (const told of one.querySelectorAll("[data-heard]")) told.hidden = true;
    for (const told of one.querySelectorAll("[data-calm]")) told.classList.remove("calm");
  }
  if (!late.length) return;
  document.getElementById("silent-count").textContent = late.length;
  document.getElementById("silent").hidden = false;
})();
