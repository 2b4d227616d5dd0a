"use strict";
// Sorting: each header of a sortable table becomes a button. Rows marked `fixed` stay on top.
const value = (cell) => {
  const text = cell.dataset.value ?? cell.firstChild?.textContent.trim() ?? "";
  const number = parseFloat(text.replace("−", "-"));
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

// Filters: by head (rows) and by group of questions (columns).
for (const form of document.querySelectorAll("form.filters")) {
  const table = document.getElementById(form.dataset.table);
  const { columns, rows } = form.elements;
  const apply = () => {
    const words = rows.value.toUpperCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of table.tBodies[0].rows) {
      const name = row.cells[0].textContent.toUpperCase();
      const fixed = row.classList.contains("fixed");
      row.hidden = !fixed && !words.every((word) => name.includes(word));
      shown += !fixed && !row.hidden;
    }
    for (const row of table.rows) {
      for (const cell of row.cells) {
        cell.hidden = cell.cellIndex > 0 && columns.value !== "all" && cell.cellIndex !== +columns.value;
      }
    }
    form.querySelector("output").textContent = `${shown} heads`;
  };
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  apply();
}
