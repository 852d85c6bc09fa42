"use strict";
// A page that was not rebuilt must not look current: systems whose next session should have started by now are overdue.
(() => {
  const now = Date.now() / 1000;
  const late = [...document.querySelectorAll("[data-due]")].filter((one) => now > Number(one.dataset.due));
  for (const one of late) {
    one.hidden = false;
    for (const note of one.querySelectorAll("[data-overdue]")) note.hidden = false;
    for (const note of one.querySelectorAll("[data-received]")) note.hidden = true;
  }
  if (late.length) {
    document.getElementById("overdue-count").textContent = late.filter((one) => one.matches("tr")).length;
    document.getElementById("overdue").hidden = false;
    for (const one of document.querySelectorAll("#problems, #problems-overdue")) one.hidden = false;
  }

  // ?display=wall: large, without scrolling, loaded again every five minutes; what does not fit is counted.
  if (new URLSearchParams(location.search).get("display") !== "wall" || !document.getElementById("age")) return;
  document.documentElement.classList.add("wall");
  // Of the file, also without a server.
  const hours = Math.max(0, Math.floor((Date.now() - Date.parse(document.lastModified)) / 36e5));
  document.getElementById("age").textContent = hours < 48 ? `, page built ${hours} h ago` : `, page built ${Math.floor(hours / 24)} days ago`;
  const fit = () => {
    const all = [...document.querySelectorAll(".strips tbody tr, .card")];
    document.getElementById("cut")?.remove();
    for (const one of all) one.classList.remove("cut");
    const left = all.filter((one) => one.getBoundingClientRect().bottom > innerHeight - 40);
    for (const one of left) one.classList.add("cut");
    if (!left.length) return;
    const note = document.createElement("p");
    note.id = "cut";
    const rows = left.filter((one) => one.matches("tr")).length, cards = left.length - rows;
    note.textContent = `Not shown here: ${[rows && `${rows} systems`, cards && `${cards} findings`].filter(Boolean).join(", ")}`;
    document.querySelector("main").append(note);
  };
  fit();
  addEventListener("resize", fit);
  setTimeout(() => location.reload(), 300e3);
})();
