"use strict";
// The address may name something inside of closed folds, for example a run of a session: open them and go there.
(() => {
  const reveal = () => {
    const target = document.getElementById(location.hash.slice(1));
    if (!target) return;
    const own = target.querySelector(":scope.row > details");
    if (own) own.open = true;
    for (let one = target; one; one = one.parentElement) if (one.tagName === "DETAILS") one.open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  reveal();
})();
