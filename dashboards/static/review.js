"use strict";
// Decisions about findings. A form shows the command of the decision, to copy; on a page of the review server
// (docs/review.md) it also records the decision.
(() => {
  const { actions, kinds, suffix } = JSON.parse(document.getElementById("review-actions").textContent);
  const token = document.querySelector('meta[name="iowatch-review"]')?.content;
  const address = new URL("../review", document.currentScript.src);
  const day = (later) => new Date(Date.now() + later * 864e5).toISOString().slice(0, 10);
  const forms = [...document.querySelectorAll("details.review")];
  // The findings of each tick: of a row, or of a card.
  const ticks = new Map([...document.querySelectorAll("input.review-tick")].map((tick) => [tick, [tick.value]]));
  const findingsOf = (details) => [...details.querySelectorAll("data")].map((one) => ({ id: one.value, ...one.dataset }));
  // Of the review server: what it knows about each finding, on which a decision is made.
  let live = {}, user = "";

  // Fields of a decision, in the order of the options: label, type, option of the command.
  const FIELDS = {
    to: ["Owner (empty: nobody)", "text", "--to"],
    title: ["What happened", "text", ""],
    date: ["First day", "date", "--date"],
    kind: ["Kind", kinds, "--kind"],
    reason: ["Reason, understandable without context", "text", "--reason"],
    until: ["Last day", "date", "--until"],
    scope: ["What it can affect: NAME=VALUE …", "text", "--scope"],
    details: ["Details", "text", "--details"],
    source: ["Source: a ticket, mail or page", "text", "--source"],
  };
  const quote = (text) => (/^[\w.@%+=:,/-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
  const make = (name, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(name), properties);
    element.append(...children);
    return element;
  };

  function command(action, values, subject) {
    const words = [];
    for (const name of [...action.required, ...action.optional]) {
      const option = FIELDS[name][2], value = values[name];
      const given = value ? quote(value) : FIELDS[name][1] === "date" ? "YYYY-MM-DD" : "'…'";
      if (name === "to" && !value) words.push("--nobody");
      else if (name === "scope") words.push(...(value ?? "").split(/\s+/).filter(Boolean).map((one) => `${option} ${quote(one)}`));
      else if (value || action.required.includes(name)) words.push(option ? `${option} ${given}` : given);
    }
    const start = action.name === "event" ? `iowatch event add ${words.shift()} --system ${quote(subject)}` : `iowatch review ${action.name} ${quote(subject)}`;
    return [start, ...words].join(" ") + suffix;
  }

  function build(details) {
    const own = findingsOf(details), ownIds = own.map((one) => one.id), systems = [...new Set(own.map((one) => one.system))];
    const offered = actions.filter((action) => own.length || action.name !== "event");
    const radio = `action-${forms.indexOf(details)}`;
    // A gain is mostly accepted. Of a loss nothing is chosen: accepting one by a habit would hide it.
    const isGain = own.length > 0 && own.every((one) => !one.loss);
    const choices = make("fieldset", {}, make("legend", { textContent: "Decision" }));
    for (const [number, action] of offered.entries())
      choices.append(make("label", {}, make("input", { type: "radio", name: radio, value: action.name, checked: isGain && !number }), action.name));
    const help = make("p", { className: "soft" }), fields = make("div", { className: "fields" });
    const about = make("p", { className: "soft" }), code = make("code"), status = make("div", { role: "status" });
    const text = make("pre", { tabIndex: 0 }, code);
    const copy = make("button", { type: "button", textContent: "Copy the command" });
    const record = make("button", { type: "submit", textContent: "Record", hidden: !token });
    const form = make("form", { noValidate: !token }, choices, help, fields, about, text, make("div", { className: "buttons" }, record, copy), status);
    const kept = { date: own[0]?.day };
    const chosen = () => offered.find((action) => action.name === form.elements[radio].value);
    // After a conflict: the findings about which nothing is recorded yet.
    let left = null;
    const chosenIds = () => left ?? [...new Set([...ownIds, ...[...ticks].flatMap(([tick, ids]) => (tick.checked ? ids : []))])];
    const values = () => Object.fromEntries([...fields.querySelectorAll("[name]")].map((input) => [input.name, input.value.trim()]));

    function showFields() {
      const action = chosen();
      help.textContent = action?.help ?? "Choose a decision.";
      fields.replaceChildren();
      copy.disabled = !action;
      if (!action) return showCommand();
      for (const name of [...action.required, ...action.optional]) {
        const [label, type] = FIELDS[name], isList = Array.isArray(type);
        const input = make(isList ? "select" : "input", { name, required: action.required.includes(name) && name !== "to" });
        if (isList) input.append(...type.map((one) => make("option", { textContent: one })));
        else Object.assign(input, { type, autocomplete: "off", maxLength: 2000 });
        const usual = name === "until" && action.required.includes(name) ? day(14) : "";
        input.value = kept[name] || usual || (isList ? type[0] : "");
        const needless = input.required || name === "to" ? "" : " (optional)";
        fields.append(make("label", { className: type === "text" ? "long" : "" }, label + needless, input));
      }
      showCommand();
    }
    function showCommand() {
      const given = values(), action = chosen(), isEvent = action?.name === "event", ids = isEvent ? systems : chosenIds();
      // Not the last day: that of an acknowledgement must not become the expiry of an acceptance.
      Object.assign(kept, given, { until: "" });
      about.textContent = ids.length > 1 ? `For ${ids.length} ${isEvent ? "systems" : "findings"}: ${ids.join(", ")}` : "";
      code.textContent = !ids.length ? "Tick findings first." : action ? ids.map((id) => command(action, given, id)).join("\n") : "Choose a decision first.";
      record.disabled = !action || !ids.length || details.dataset.done;
      record.textContent = user ? `Record as ${user}` : "Record";
    }
    const say = (refused, ...lines) => {
      status.className = refused ? "refused" : "";
      status.replaceChildren(...lines.filter(Boolean).map((line) => make("p", {}, line)));
      status.scrollIntoView({ block: "nearest" });
    };

    form.addEventListener("input", (event) => {
      if (event.target.name !== radio) return showCommand();
      showFields();
      showWhole(details);
    });
    copy.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(code.textContent);
        say(false, "Copied.");
      } catch {
        getSelection().selectAllChildren(code);
        say(false, "Selected: press Ctrl-C.");
      }
    });
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (!token) return copy.click();
      const action = chosen(), bases = Object.fromEntries(chosenIds().map((id) => [id, live[id]]));
      record.disabled = true;
      say(false, "Recording …");
      const answer = await ask({ method: "POST", body: JSON.stringify({ action: action.name, findings: bases, systems, ...values() }) });
      record.disabled = false;
      if (answer.error) return say(true, answer.error, answer.hint);
      acceptAnswer(answer);
      const conflicts = Object.entries(answer.conflicts);
      left = conflicts.length ? conflicts.map(([id]) => id) : null;
      showCommand();
      say(left, ...answer.messages, ...conflicts.map(([, text]) => text));
      if (left) return (record.textContent = "Record all the same");
      record.disabled = details.dataset.done = true;
      waitForPages(say, answer.messages);
    });
    details.append(form);
    showFields();
    return { showCommand, say };
  }

  // The answer of the review server, or a message in `error`.
  async function ask(options = {}, query = "") {
    const headers = { "Content-Type": "application/json", "X-Iowatch-Token": token };
    try {
      const answer = await fetch(address.href + query, { ...options, headers, cache: "no-store" });
      return await answer.json();
    } catch {
      return { error: "The review server does not answer.", hint: "Is `iowatch dashboard serve --review` running? Reload the page to see what is recorded." };
    }
  }

  function acceptAnswer(answer) {
    user = answer.user;
    Object.assign(live, answer.findings);
    for (const [id, one] of Object.entries(answer.findings)) {
      const about = (name) => [...document.querySelectorAll(`[data-${name}-of]`)].filter((element) => element.getAttribute(`data-${name}-of`) === id);
      for (const badge of about("state")) Object.assign(badge, { className: `state ${one.state}`, textContent: one.state });
      for (const element of about("owner")) element.textContent = one.owner ?? element.dataset.nobody ?? "none";
    }
  }

  // Pages are rebuilt in the background; then this page is loaded again, unless another form is being filled in.
  async function waitForPages(say, messages) {
    say(false, ...messages, "The pages are being built …");
    for (;;) {
      await new Promise((done) => setTimeout(done, 1000));
      const answer = await ask();
      if (answer.error) return say(true, ...messages, answer.error);
      if (answer.build.failed) return say(true, ...messages, `The pages could not be rebuilt: ${answer.build.failed}`);
      if (!answer.build.running) break;
    }
    if (forms.some((one) => one.open && one.dataset.touched && !one.dataset.done)) return say(false, ...messages, "The pages are built; reload this one when you are done.");
    location.reload();
  }

  // With the buttons at its end.
  const showWhole = (details) => details.scrollIntoView({ block: "nearest" });
  const built = new Map();
  const open = (details) => details.open && !built.has(details) && built.set(details, build(details));
  const refresh = () => built.forEach((one) => one.showCommand());
  for (const details of forms) {
    details.querySelector("pre, p").remove();
    details.addEventListener("toggle", () => open(details) && showWhole(details));
    details.addEventListener("input", () => (details.dataset.touched = "yes"));
    // Cards: a tick next to each, where there are several.
    if (forms.length > 1 && findingsOf(details).length) {
      const tick = make("input", { type: "checkbox", className: "review-tick" });
      details.before(make("label", { className: "review-tick-label" }, tick, "decide with others"));
      ticks.set(tick, findingsOf(details).map((one) => one.id));
    }
  }
  for (const tick of ticks.keys()) {
    tick.hidden = false;
    tick.addEventListener("change", refresh);
  }
  forms.forEach(open);
  if (!token) return;
  const ids = [...new Set([...forms.flatMap(findingsOf).map((one) => one.id), ...[...ticks.values()].flat()])];
  const load = async () => {
    // In parts, because an address has a limit.
    const answer = { findings: {} };
    for (let first = 0; first === 0 || first < ids.length; first += 100) {
      const part = await ask({}, `?${new URLSearchParams(ids.slice(first, first + 100).map((id) => ["finding", id]))}`);
      if (part.error) return;
      Object.assign(answer, part, { findings: Object.assign(answer.findings, part.findings) });
    }
    acceptAnswer(answer);
    refresh();
    for (const details of forms) {
      details.dataset.user = user;
      const changed = findingsOf(details).map((one) => answer.findings[one.id]?.state !== one.state && answer.findings[one.id]?.last).filter(Boolean);
      const first = details.previousElementSibling?.matches(".review-tick-label") ? details.previousElementSibling : details;
      if (changed.length) first.before(make("p", { className: "review-now" }, `Decided since this page was built: ${changed.join("; ")}.`));
    }
  };
  load();
})();
