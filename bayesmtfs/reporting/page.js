"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const value = (row, column) => {
    const text = row.cells[column].dataset.value ?? row.cells[column].textContent;
    const number = Number(text);
    return text.trim() !== "" && !Number.isNaN(number) ? number : text.toLowerCase();
  };
  table.tHead.querySelectorAll("th button").forEach((button, column) => {
    button.addEventListener("click", () => {
      const head = button.parentElement;
      const falling = head.getAttribute("aria-sort") === "ascending";
      table.tHead.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", falling ? "descending" : "ascending");
      const compare = (a, b) => (typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1);
      [...body.rows]
        .sort((a, b) => (falling ? -1 : 1) * compare(value(a, column), value(b, column)))
        .forEach((row) => body.append(row));
    });
  });
  const filter = document.getElementById(table.dataset.filter);
  const count = document.getElementById(table.dataset.count);
  filter?.addEventListener("input", () => {
    const wanted = filter.value.toLowerCase();
    let shown = 0;
    for (const row of body.rows) {
      row.hidden = !row.textContent.toLowerCase().includes(wanted);
      shown += row.hidden ? 0 : 1;
    }
    count.textContent = `${shown} shown`;
  });
}
