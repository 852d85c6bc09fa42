"use strict";
// The lists of compare.html. A server that computes comparisons answers the form itself; of a site without such a
// server this opens the page of the pair, or states the command that compares it. The address keeps both sides.
(() => {
  const form = document.getElementById("choice"), answer = document.getElementById("answer");
  // Without two sides to choose there is no form.
  if (!form) return;
  const { served, pairs } = JSON.parse(document.getElementById("pairs").textContent);
  const lists = [form.elements.left, form.elements.right];
  form.hidden = false;
  // An address may name a side that is in no list.
  const select = (list, side) => {
    if (![...list.options].some((option) => option.value === side)) list.add(new Option(side, side));
    list.value = side;
  };
  // ?left=…&right=… asks for the comparison; #left=…&right=… only preselects.
  const asked = new URLSearchParams(location.search), preselected = new URLSearchParams(location.hash.slice(1));
  for (const list of lists) {
    const side = asked.get(list.name) ?? preselected.get(list.name);
    if (side) select(list, side);
  }
  document.getElementById("swap").addEventListener("click", () => {
    const sides = lists.map((list) => list.value);
    lists.forEach((list, i) => select(list, sides[1 - i]));
  });
  if (served) return;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    location.assign(`${location.pathname}?${new URLSearchParams({ left: lists[0].value, right: lists[1].value })}`);
  });
  const [left, right] = ["left", "right"].map((name) => asked.get(name));
  if (!left || !right) return;
  const page = (first, second) => pairs.find((pair) => pair.left === first && pair.right === second)?.page;
  if (page(left, right)) { location.replace(page(left, right) + location.hash); return; }
  const quoted = (text) => /^[\w:.,=/-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
  const line = (...nodes) => { const element = document.createElement("p"); element.append(...nodes); answer.append(element); };
  const code = (text) => { const element = document.createElement("code"); element.textContent = text; return element; };
  if (left === right && !left.startsWith("event:")) { line("Both sides are the same. Choose two different ones."); return; }
  if (page(right, left)) {
    const link = document.createElement("a");
    link.href = page(right, left);
    link.textContent = "the same two sides in the other order";
    line("This site has ", link, ".");
  } else line("This comparison was not computed when the site was built: only pairs of stacks have pages.");
  line(code(`iowatch compare ${quoted(left)} ${quoted(right)}`), " compares them; so does this page when it is served by ", code("iowatch dashboard serve"), ".");
})();
