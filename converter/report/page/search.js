// Search by name, operator and source, and conditions on columns: "conv sqnr<20 op:add".

const { element } = report;
const MOST = 12;
const CONDITION = /^([a-z_]+)(<=|>=|<|>|=)(-?\d+(?:\.\d+)?(?:e-?\d+)?)([km]?)$/i;
const FACTORS = { "": 1, k: 1e3, m: 1e6 };

// Return the indices of the nodes that match all words of a query, in the order of the nodes.
report.find = (query) => {
  const conditions = query.trim().split(/\s+/).filter(Boolean).map(conditionOf);
  const found = [];
  const count = report.nodeCount();
  for (let index = 0; index < count; index += 1) {
    if (conditions.every((condition) => condition(index))) found.push(index);
  }
  return found;
};

function conditionOf(word) {
  const compared = CONDITION.exec(word);
  const name = compared?.[1].toLowerCase();
  const column = report.isColumn(name) ? report.column(name) : null;
  if (column) {
    const limit = Number(compared[3]) * FACTORS[compared[4].toLowerCase()];
    return (index) => typeof column[index] === "number" && compare(column[index], compared[2], limit);
  }
  const lower = word.toLowerCase();
  if (lower.startsWith("op:")) return (index) => report.opOf(index) === lower.slice(3);
  const sources = report.column("sources");
  return (index) =>
    report.nameOf(index).toLowerCase().includes(lower) ||
    report.opOf(index).includes(lower) ||
    Boolean(sources?.[index]?.some((source) => source.toLowerCase().includes(lower)));
}

function compare(value, operator, limit) {
  if (operator === "<") return value < limit;
  if (operator === ">") return value > limit;
  if (operator === "<=") return value <= limit;
  if (operator === ">=") return value >= limit;
  return value === limit;
}

// The search box in the header, a combobox with a list of nodes.
report.searchBox = () => {
  const list = element("ul", { id: "found", role: "listbox", "aria-label": "Nodes", hidden: true });
  const input = element("input", {
    type: "search",
    id: "search",
    placeholder: "Search nodes   /",
    "aria-label": "Search nodes by name, operator or source",
    title: "Words, op:conv, or conditions such as sqnr<20 and macs>1m",
    role: "combobox",
    "aria-expanded": "false",
    "aria-controls": "found",
    "aria-autocomplete": "list",
    autocomplete: "off",
    spellcheck: "false",
  });
  let shown = [];
  let active = -1;

  function close() {
    list.hidden = true;
    active = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }

  function activate(place) {
    active = place;
    list.querySelectorAll("li[role=option]").forEach((item, index) => {
      item.setAttribute("aria-selected", String(index === active));
    });
    const item = list.querySelector('li[aria-selected="true"]');
    if (item) {
      input.setAttribute("aria-activedescendant", item.id);
      item.scrollIntoView({ block: "nearest" });
    }
  }

  function choose(index) {
    close();
    report.select(index);
  }

  function update() {
    const query = input.value.trim();
    const indices = query ? report.find(query) : [];
    report.showFound(query ? indices : null);
    if (!query) return close();
    shown = indices.slice(0, MOST);
    const items = shown.map((index, place) => {
      const item = element(
        "li",
        { role: "option", id: `found-${place}`, "aria-selected": "false" },
        element("span", { class: "name" }, report.shorten(report.nameOf(index), 60)),
        element("span", { class: "soft" }, report.opOf(index)),
      );
      item.addEventListener("mousedown", (event) => {
        event.preventDefault();
        choose(index);
      });
      return item;
    });
    const more = indices.length > MOST ? `${indices.length - MOST} more; the table of nodes shows all` : "";
    const rest = indices.length ? more : "no node matches";
    list.replaceChildren(...items, ...(rest ? [element("li", { class: "soft", role: "presentation" }, rest)] : []));
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    activate(items.length ? 0 : -1);
    return undefined;
  }

  input.addEventListener("input", update);
  input.addEventListener("focus", () => {
    if (input.value.trim()) update();
  });
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" && shown.length) activate((active + 1) % shown.length);
    else if (event.key === "ArrowUp" && shown.length) activate((active + shown.length - 1) % shown.length);
    else if (event.key === "Enter" && active >= 0 && !list.hidden) choose(shown[active]);
    else if (event.key === "Escape") {
      input.value = "";
      update();
      input.blur();
    } else return;
    event.preventDefault();
  });
  document.addEventListener("keydown", (event) => {
    const isTyping = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
    if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    input.focus();
    input.select();
  });
  report.onModel(() => {
    input.value = "";
    close();
  });
  return element("div", { class: "search" }, input, list);
};
