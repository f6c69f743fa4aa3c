// Input fields that filter the rows of a table: one for each element with the class `table-filter`, for the next table.
for (const element of document.querySelectorAll(".table-filter")) {
  const tables = [...document.querySelectorAll("table")];
  const table = tables.find((each) => element.compareDocumentPosition(each) & Node.DOCUMENT_POSITION_FOLLOWING);
  if (table === undefined) continue;
  const rows = [...table.querySelectorAll("tbody tr")];
  const input = Object.assign(document.createElement("input"), { type: "search", placeholder: "words of a row" });
  input.setAttribute("aria-label", "filter of the rows");
  const count = document.createElement("output");
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      if (!row.hidden) shown += 1;
    }
    count.value = words.length ? `${shown} of ${rows.length} rows` : "";
  });
  element.append(input, " ", count);
}
