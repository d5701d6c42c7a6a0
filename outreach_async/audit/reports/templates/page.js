"use strict";
// The report is readable without this script, which adds the theme button, and sorting, filtering and paging of the tables.
(() => {
  const ROWS = matchMedia("(max-width: 46rem)").matches ? 8 : 25;
  const root = document.documentElement;

  function element(name, properties, ...content) {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...content);
    return made;
  }

  // A page opened from a file may have no storage. The choice is then lost when the page is closed.
  function stored(value) {
    try {
      return value ? localStorage.setItem("theme", value) : localStorage.getItem("theme");
    } catch {
      return null;
    }
  }

  function startTheme(button) {
    const system = matchMedia("(prefers-color-scheme: dark)");
    const current = () => root.dataset.theme || (system.matches ? "dark" : "light");
    const label = () => { button.textContent = current() === "dark" ? "Light colours" : "Dark colours"; };
    const chosen = stored();
    if (chosen === "dark" || chosen === "light") root.dataset.theme = chosen;
    button.addEventListener("click", () => {
      root.dataset.theme = current() === "dark" ? "light" : "dark";
      stored(root.dataset.theme);
      label();
    });
    system.addEventListener("change", label);
    button.hidden = false;
    label();
  }

  function valueOf(cell) {
    const given = cell.dataset.value;
    return given === undefined ? cell.textContent.trim() : given === "" ? -Infinity : Number(given);
  }

  function compare(a, b) {
    return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
  }

  // Only the visible rows are in the document: two thousand rows would slow down every change of layout.
  function startTable(card) {
    const body = card.querySelector("tbody");
    const all = [...body.rows].map((row) => ({ row, text: row.textContent.toLowerCase(), data: row.dataset }));
    const tools = card.previousElementSibling;
    const count = element("span");
    count.setAttribute("role", "status");
    const previous = element("button", { type: "button" }, "Previous");
    const next = element("button", { type: "button" }, "Next");
    let found = all;
    let page = 0;

    function show() {
      const pages = Math.max(1, Math.ceil(found.length / ROWS));
      page = Math.min(page, pages - 1);
      const from = page * ROWS;
      const shown = found.slice(from, from + ROWS);
      body.replaceChildren(...shown.map((item) => item.row));
      const [first, last, total] = [from + 1, from + shown.length, found.length].map((number) => number.toLocaleString("en"));
      count.textContent = found.length ? `${first} to ${last} of ${total}` : "No rows match; change the filter.";
      previous.disabled = page === 0;
      next.disabled = page === pages - 1;
    }

    function filter() {
      const fields = [...tools.elements].filter((field) => field.name);
      const words = fields.filter((field) => field.type === "search").flatMap((field) => field.value.toLowerCase().split(/\s+/));
      const picks = fields.filter((field) => field.type !== "search" && field.value);
      found = all.filter((item) => words.every((word) => item.text.includes(word))
        && picks.every((field) => item.data[field.name] === field.value));
      page = 0;
      show();
    }

    function sortBy(head, index, figure) {
      const before = head.getAttribute("aria-sort");
      const up = before ? before === "descending" : !figure;
      for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const keyed = all.map((item) => [valueOf(item.row.cells[index]), item]);
      keyed.sort((a, b) => (up ? 1 : -1) * compare(a[0], b[0]));
      all.splice(0, all.length, ...keyed.map((pair) => pair[1]));
      filter();
    }

    [...card.querySelectorAll("thead th")].forEach((head, index) => {
      const button = element("button", { type: "button" }, ...head.childNodes);
      button.addEventListener("click", () => sortBy(head, index, head.classList.contains("figure")));
      head.append(button);
    });
    tools.addEventListener("input", filter);
    tools.addEventListener("submit", (event) => event.preventDefault());
    tools.hidden = all.length < 2;
    previous.addEventListener("click", () => { page -= 1; show(); });
    next.addEventListener("click", () => { page += 1; show(); });
    if (all.length > ROWS) {
      card.after(element("div", { className: "pages" }, count, element("div", { className: "turn" }, previous, next)));
    } else {
      card.after(element("div", { className: "pages" }, count));
    }
    // A printout has no paging: it contains every row that matches the filter.
    addEventListener("beforeprint", () => body.replaceChildren(...found.map((item) => item.row)));
    addEventListener("afterprint", show);
    filter();
  }

  startTheme(document.querySelector(".theme"));
  document.querySelectorAll(".table[data-rows]").forEach(startTable);
  addEventListener("beforeprint", () => {
    for (const detail of document.querySelectorAll("details")) detail.open = true;
  });
})();
