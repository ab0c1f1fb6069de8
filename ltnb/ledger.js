// The ledger of claims: choose paper and verdict. Without scripts the page shows all claims.

document.addEventListener("DOMContentLoaded", () => {
  const rows = [...document.querySelectorAll("table.ledger tbody tr")];
  if (rows.length === 0) return;
  const tableOf = (row) => row.closest("section");
  const paperOf = (row) => tableOf(row).querySelector("h2").firstChild.textContent;
  const verdictOf = (row) => row.querySelector(".verdict").textContent;

  const choice = (label, values) => {
    const select = document.createElement("select");
    select.append(new Option(`all ${label}s`, ""), ...values.map((value) => new Option(value, value)));
    select.ariaLabel = label;
    select.addEventListener("change", show);
    return select;
  };
  const paper = choice("paper", [...new Set(rows.map(paperOf))]);
  const verdict = choice("verdict", [...new Set(rows.map(verdictOf))].sort());
  const outstanding = Object.assign(document.createElement("input"), { type: "checkbox" });
  outstanding.addEventListener("change", show);
  const label = document.createElement("label");
  label.append(outstanding, " evidence outstanding");
  const count = document.createElement("output");

  function show() {
    for (const row of rows) {
      row.hidden =
        (paper.value !== "" && paperOf(row) !== paper.value) ||
        (verdict.value !== "" && verdictOf(row) !== verdict.value) ||
        (outstanding.checked && row.querySelector(".outstanding") === null);
    }
    for (const section of new Set(rows.map(tableOf))) {
      section.hidden = rows.every((row) => row.hidden || tableOf(row) !== section);
    }
    count.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} claims`;
  }

  const bar = document.createElement("form");
  bar.className = "ledger-choice";
  bar.append(paper, verdict, label, count);
  tableOf(rows[0]).before(bar);
  show();
});
