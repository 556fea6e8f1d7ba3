// SPDX-License-Identifier: BSD-3-Clause
// A field above each table of a page with the class "filtered" shows only the rows that have all typed words.
// Escape empties the field; screen readers are told the number of rows.
for (const region of document.querySelectorAll(".filtered")) {
  const rows = [...region.querySelectorAll("tbody tr")];
  const field = document.createElement("input");
  field.type = "search";
  field.className = "filter-field";
  field.placeholder = "Filter: an operator, a type, a kernel, a PyTorch name";
  field.setAttribute("aria-label", field.placeholder);
  const count = document.createElement("span");
  count.className = "filter-count";
  count.setAttribute("role", "status");
  const show = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every(word => text.includes(word));
      shown += row.hidden ? 0 : 1;
    }
    count.textContent = `${shown} of ${rows.length} rows`;
  };
  field.addEventListener("input", show);
  field.addEventListener("keydown", event => {
    if (event.key === "Escape") {
      field.value = "";
      show();
    }
  });
  region.prepend(field, count);
  show();
}
