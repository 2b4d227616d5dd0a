"use strict";
// Sorting: each header of a sortable table becomes a button. Rows marked `fixed` stay on top.
const value = (cell) => {
  const text = cell.firstChild?.textContent.trim() ?? "";
  const number = parseFloat(text.replace("−", "-").replaceAll(",", ""));
  return Number.isNaN(number) || !cell.classList.contains("number") ? text : number;
};
const compare = (a, b) =>
  typeof a === "number" && typeof b === "number"
    ? a - b
    : (typeof b === "number") - (typeof a === "number") ||
      String(a).localeCompare(String(b), "en", { numeric: true });

for (const table of document.querySelectorAll("table.sortable")) {
  const headers = [...table.tHead.rows[0].cells];
  headers.forEach((header, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    header.append(button);
    button.addEventListener("click", () => {
      const first = header.classList.contains("number") ? "descending" : "ascending";
      const other = first === "descending" ? "ascending" : "descending";
      const order = header.getAttribute("aria-sort") === first ? other : first;
      headers.forEach((one) => one.removeAttribute("aria-sort"));
      header.setAttribute("aria-sort", order);
      const sign = order === "ascending" ? 1 : -1;
      const rows = [...table.tBodies[0].rows].filter((row) => !row.classList.contains("fixed"));
      rows.sort((a, b) => sign * compare(value(a.cells[column]), value(b.cells[column])));
      table.tBodies[0].append(...rows);
    });
  });
}

// Filters: model, layer and group of questions, for everything that names its own.
const filters = document.getElementById("filters");
const chosen = { model: "", layer: "", group: "" };
const fits = (element, key) =>
  !chosen[key] || element.dataset[key] === undefined || element.dataset[key] === chosen[key];
const OVERALL = "Overall";

const filter = () => {
  for (const key of Object.keys(chosen)) chosen[key] = filters?.elements[key]?.value ?? "";
  for (const element of document.querySelectorAll("[data-model], [data-layer], tr[data-group]")) {
    element.hidden = !Object.keys(chosen).every((key) => fits(element, key));
  }
  for (const header of document.querySelectorAll("th[data-group]")) {
    header.hidden = !fits(header, "group") && header.dataset.group !== OVERALL;
    const column = header.cellIndex;
    for (const row of header.closest("table").tBodies[0].rows) {
      row.cells[column].hidden = header.hidden;
    }
  }
  document.dispatchEvent(new Event("filtered"));
};
filters?.addEventListener("input", filter);
filters?.addEventListener("reset", () => setTimeout(filter));
filters?.addEventListener("submit", (event) => event.preventDefault());

// Search: heads by name, within one table.
for (const form of document.querySelectorAll("form.search")) {
  const body = document.getElementById(form.dataset.table).tBodies[0];
  const search = () => {
    const words = form.elements.rows.value.toUpperCase().split(/\s+/).filter(Boolean);
    const heads = [...body.rows].filter((row) => !row.classList.contains("fixed"));
    for (const row of heads) {
      const name = row.cells[0].textContent.toUpperCase();
      row.classList.toggle("unmatched", !words.every((word) => name.includes(word)));
    }
    const shown = heads.filter((row) => !row.hidden && !row.classList.contains("unmatched"));
    form.querySelector("output").textContent = `${shown.length} heads`;
  };
  form.addEventListener("input", search);
  form.addEventListener("submit", (event) => event.preventDefault());
  document.addEventListener("filtered", search);
}

// The question browser. Text from questions and answers is only ever set as text.
const make = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, content] of Object.entries(attributes)) element.setAttribute(name, content);
  element.append(...children);
  return element;
};
const signed = (points) => (points > 0 ? "+" : points < 0 ? "−" : "") + Math.abs(points).toFixed(1);
const form = document.querySelector("form.browser");

if (form) {
  const { sweep, head, outcome, question, previous, next } = form.elements;
  const article = form.querySelector("article");
  const counted = form.querySelector("output");
  const parsed = new Map();
  const data = () => {
    if (!parsed.has(sweep.value)) {
      parsed.set(sweep.value, JSON.parse(document.getElementById(sweep.value).textContent));
    }
    return parsed.get(sweep.value);
  };
  const OUTCOMES = { gained: "wrong → right", lost: "right → wrong", same: "same verdict" };
  const turned = (before, after) => (before === after ? "same" : after ? "gained" : "lost");
  const chip = (right) =>
    make("span", { class: `chip ${right ? "right" : "wrong"}` }, right ? "right" : "wrong");

  const side = (title, right, margin, same, rest) =>
    make(
      "div",
      {},
      make("h4", {}, `${title} `, chip(right), make("small", {}, ` margin ${margin?.toPrecision(3) ?? "none"}`)),
      make("p", { class: "answer", dir: "auto", tabindex: 0 }, same, make("mark", {}, rest || "[ends here]")),
    );

  const show = () => {
    const { questions, heads, of } = data();
    const answer = heads[+head.value]?.answers[+question.value];
    article.replaceChildren();
    if (!answer || question.value === "") return;
    const [name, shared, rest, right, margin] = answer;
    const [subject, level, asked, gold, base, baseMargin, baseRight, solved] = questions[name];
    const about = [subject, level && `level ${level}`].filter(Boolean).join(", ");
    article.append(
      make("h3", {}, make("bdi", {}, name), make("small", {}, ` ${about}`)),
      make("p", { class: "question", dir: "auto" }, asked),
      make("p", {}, "Right answer: ", make("code", {}, make("bdi", {}, gold)),
        `, given by ${solved} of ${of} pruned models.`),
      make("div", { class: "sides" },
        side("No Prune", baseRight, baseMargin, base.slice(0, shared), base.slice(shared)),
        side(`Without ${heads[+head.value].name}`, right, margin, base.slice(0, shared), rest)),
    );
    previous.disabled = question.selectedIndex <= 0;
    next.disabled = question.selectedIndex >= question.options.length - 1;
  };

  const list = () => {
    const { questions, heads } = data();
    const answers = heads[+head.value]?.answers ?? [];
    const options = [];
    answers.forEach(([name, , , right], place) => {
      const [subject, level, , , , , baseRight] = questions[name];
      const kind = turned(baseRight, right);
      const groups = [subject, `Level ${level}`, OVERALL];
      if (chosen.group && !groups.includes(chosen.group)) return;
      if (outcome.value && outcome.value !== kind) return;
      const about = [OUTCOMES[kind], subject, level && `level ${level}`, name];
      options.push(make("option", { value: place }, about.filter(Boolean).join(" · ")));
    });
    question.replaceChildren(...options);
    question.selectedIndex = options.length ? 0 : -1;
    const changed = heads[+head.value]?.changed ?? 0;
    const partly = answers.length < changed ? ` (${answers.length} of ${changed} embedded)` : "";
    counted.textContent = `${options.length} of ${answers.length} changed answers${partly}`;
    show();
  };

  const offer = () => {
    const before = head.selectedOptions[0]?.dataset.name;
    const options = [];
    data().heads.forEach((one, place) => {
      if (chosen.layer && String(one.layer) !== chosen.layer) return;
      const label = `${one.name}: ${signed(100 * one.gain)} points, ${one.changed} changed`;
      options.push(make("option", { value: place, "data-name": one.name }, label));
    });
    head.replaceChildren(...options);
    head.selectedIndex = options.length ? Math.max(0, options.findIndex((o) => o.dataset.name === before)) : -1;
    list();
  };

  const choose = () => {
    const options = [...sweep.options];
    for (const option of options) {
      option.disabled = Boolean(chosen.model) && option.dataset.ofModel !== chosen.model;
    }
    if (sweep.selectedOptions[0]?.disabled) {
      sweep.selectedIndex = options.findIndex((option) => !option.disabled);
    }
    form.hidden = sweep.selectedIndex < 0;
    if (form.hidden) sweep.selectedIndex = options.findIndex(() => true);
    offer();
  };
  const step = (by) => {
    question.selectedIndex += by;
    show();
  };
  sweep.closest("label").hidden = sweep.options.length < 2;
  sweep.addEventListener("input", offer);
  head.addEventListener("input", list);
  outcome.addEventListener("input", list);
  question.addEventListener("input", show);
  previous.addEventListener("click", () => step(-1));
  next.addEventListener("click", () => step(1));
  form.addEventListener("submit", (event) => event.preventDefault());
  document.addEventListener("filtered", choose);
}
filter();
