"use strict";
const value = (row, column) => {
  const text = row.cells[column].dataset.value ?? row.cells[column].textContent;
  const number = Number(text);
  return text.trim() !== "" && !Number.isNaN(number) ? number : text.toLowerCase();
};
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
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
}
for (const filter of document.querySelectorAll("input[data-filters]")) {
  const table = document.getElementById(filter.dataset.filters);
  const count = document.getElementById(`${table.id}-count`);
  filter.addEventListener("input", () => {
    const wanted = filter.value.toLowerCase();
    let shown = 0;
    for (const row of table.tBodies[0].rows) {
      row.hidden = !row.textContent.toLowerCase().includes(wanted);
      shown += row.hidden ? 0 : 1;
    }
    count.textContent = `${shown} shown`;
  });
}
for (const box of document.querySelectorAll("input[data-tasks-of]")) {
  const table = document.getElementById(box.dataset.tasksOf);
  box.addEventListener("change", () => table.classList.toggle("hide-tasks", !box.checked));
}
// Rows that the filter shows, in their order, with numbers in full
const asCsv = (table) => {
  const quoted = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const head = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
  const rows = [...table.tBodies[0].rows].filter((row) => !row.hidden);
  const cells = rows.map((row) => [...row.cells].map((cell) => cell.dataset.value ?? cell.textContent));
  return [head, ...cells].map((line) => line.map(quoted).join(",")).join("\r\n") + "\r\n";
};
for (const button of document.querySelectorAll("button[data-csv-of]")) {
  button.addEventListener("click", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([asCsv(document.getElementById(button.dataset.csvOf))], { type: "text/csv" }));
    link.download = `${button.dataset.csvOf}.csv`;
    link.click();
    URL.revokeObjectURL(link.href);
  });
}
