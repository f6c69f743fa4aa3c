// Table of all nodes: sorted by a click on a heading, filtered by words and conditions. Only visible rows are elements,
// so that 10,000 nodes stay fast.

const { element, text } = report;
const ROW = parseFloat(getComputedStyle(document.documentElement).getPropertyValue("--row")); // pixels
const SPARE = 12; // rows above and below the visible ones

// A column of the table: heading, width in pixels, value to sort by, and text. `show` may return an element.
const number = (title, name, width, format, hint) => ({
  title,
  width,
  name,
  isNumber: true,
  hint,
  value: (index) => report.cell(name, index),
  show: (index) => format(report.cell(name, index)),
});
const words = (title, name, width, hint) => ({
  title,
  width,
  name,
  hint,
  value: (index) => report.cell(name, index),
  show: (index) => report.cell(name, index) || "",
});

const INDEX = { title: "#", width: 58, name: "name", isNumber: true, value: (index) => index, show: (index) => index };
const NAME = {
  title: "node",
  width: 230,
  name: "name",
  value: (index) => report.nameOf(index),
  show: (index) => report.nodeLink(index, report.shorten(report.nameOf(index), 30)),
};
const OPERATOR = words("operator", "op", 120);
const TYPE = {
  title: "type",
  width: 165,
  name: "dtype",
  value: (index) => report.cell("dtype", index),
  show: (index) => text.type(report.cell("dtype", index), report.cell("shape", index)),
};
const SQNR = {
  ...number("SQNR dB", "sqnr", 94, text.decibel, "signal-to-quantization-noise ratio of the result in the model"),
  value: (index) => (report.equalWord(index) ? Infinity : report.cell("sqnr", index)),
  show: (index) => report.equalWord(index) || text.decibel(report.cell("sqnr", index)),
};
const SQNR_BAR = {
  title: "",
  width: 90,
  name: "sqnr",
  value: SQNR.value,
  show: (index) => report.bar(report.equalWord(index) ? 1 : report.sqnrPart(report.cell("sqnr", index))),
};
const ISOLATED = number(
  "alone dB",
  "isolated",
  94,
  text.decibel,
  "SQNR at the outputs if only this node is in integers",
);
const NOISE = number(
  "noise added",
  "noise_added",
  100,
  text.share,
  "noise that the step of this tensor adds, as a share of its power",
);
const TIME = number("least time", "seconds", 90, text.time, "lower bound on the chip, for this node alone");
const COMPUTE = number("compute cycles", "compute_cycles", 110, text.count, "estimate of the vendor's compiler");
const TRANSFER = number("transfer cycles", "transfer_cycles", 110, text.count, "estimate; the compiler overlaps them");
const MACS = number("MACs", "macs", 120, text.count);
const SCALE = {
  title: "scale",
  width: 190,
  name: "scale",
  value: (index) => {
    const scale = report.cell("scale", index);
    return Array.isArray(scale) ? scale[0] : scale;
  },
  show: (index) => text.scale(report.cell("scale", index), 0),
};
const SOURCE = {
  title: "source",
  width: 260,
  name: "sources",
  value: (index) => (report.cell("sources", index) || []).join("; "),
  show: (index) => (report.cell("sources", index) || []).join("; "),
};
const limit = (title, place) => ({
  title,
  width: 90,
  name: "range",
  isNumber: true,
  value: (index) => (report.cell("range", index) || [null, null])[place],
  show: (index) => text.number((report.cell("range", index) || [null, null])[place]),
});

const PRESETS = {
  Overview: [INDEX, NAME, OPERATOR, TYPE, SQNR, ISOLATED, NOISE, TIME, SOURCE],
  Accuracy: [
    INDEX,
    NAME,
    OPERATOR,
    words("stage", "stage", 90, "stage that introduced the difference"),
    number("max difference", "max_difference", 120, text.number),
    number("of range", "relative_difference", 90, text.number),
    number("cosine", "cosine", 95, (value) => (value === null ? "-" : value.toFixed(6))),
    SQNR,
    SQNR_BAR,
    NOISE,
    number("clipped", "clipped", 85, text.share, "share of the values beyond the largest integer"),
    number("integers that differ", "different", 130, text.count),
    number("steps", "steps", 70, text.count),
  ],
  Attribution: [
    INDEX,
    NAME,
    OPERATOR,
    ISOLATED,
    number("weights dB", "weights_only", 100, text.decibel),
    number("activations dB", "activations_only", 125, text.decibel),
    number("accumulated dB", "accumulated", 130, text.decibel),
    number("classes changed", "flips", 120, text.share),
    words("larger part", "cause", 110),
    words("precision rule", "fix", 340),
  ],
  Quantization: [
    INDEX,
    NAME,
    OPERATOR,
    words("data type", "dtype", 100),
    SCALE,
    {
      title: "zero point",
      width: 100,
      name: "zero_point",
      isNumber: true,
      value: (index) => [report.cell("zero_point", index)].flat()[0],
      show: (index) => {
        const zero = report.cell("zero_point", index);
        return zero === null ? "" : [zero].flat().join(" to ");
      },
    },
    limit("lowest", 0),
    limit("highest", 1),
    SOURCE,
  ],
  Cost: [
    INDEX,
    NAME,
    OPERATOR,
    TYPE,
    MACS,
    number("bytes", "bytes", 120, text.count),
    TIME,
    COMPUTE,
    TRANSFER,
    number("group", "group", 70, (value) => (value === null ? "-" : value)),
  ],
  Graph: [
    INDEX,
    NAME,
    OPERATOR,
    TYPE,
    SOURCE,
    {
      title: "reads",
      width: 240,
      name: "name",
      value: (index) => report.producers(index)[0],
      show: (index) => report.producers(index).map((other, place) => [place ? ", " : "", report.nodeLink(other)]),
    },
    words("attributes", "parameters", 420),
  ],
};
const NEEDED = { Accuracy: "stage", Attribution: "isolated", Quantization: "scale", Cost: "seconds" };

const state = { preset: "Overview", sort: null, isDescending: false, rows: [], columns: [] };
const parts = {};

report.addView("nodes", {
  lead: "Click a heading to sort. Arrow keys move the selection.",
  mount(container) {
    parts.filter = element("input", {
      type: "search",
      id: "filter",
      placeholder: "Filter: words, op:conv, sqnr<20, macs>1m",
      "aria-label": "Filter the nodes",
      autocomplete: "off",
      spellcheck: "false",
    });
    parts.filter.addEventListener("input", update);
    parts.presets = element("div", { class: "presets", role: "group", "aria-label": "Columns" });
    parts.count = element("span", { class: "soft", role: "status" });
    parts.head = element("tr", { "aria-rowindex": "1" });
    parts.columns = element("colgroup", {});
    parts.above = element("tr", { class: "space", "aria-hidden": "true" });
    parts.below = element("tr", { class: "space", "aria-hidden": "true" });
    parts.body = element("tbody", {});
    parts.table = element("table", { class: "nodes" }, parts.columns, element("thead", {}, parts.head), parts.body);
    parts.scroll = element(
      "div",
      { class: "scroll nodes", id: "nodes", tabindex: "0", role: "region", "aria-label": "All nodes" },
      parts.table,
    );
    parts.scroll.addEventListener("scroll", draw, { passive: true });
    parts.scroll.addEventListener("keydown", moveByKey);
    new ResizeObserver(draw).observe(parts.scroll);
    container.append(element("div", { class: "row tools" }, parts.filter, parts.presets, parts.count), parts.scroll);
  },
  select(index) {
    if (!parts.body) return;
    for (const row of parts.body.rows) row.classList.toggle("selected", Number(row.dataset.index) === index);
    if (!parts.scroll.contains(document.activeElement)) show(index);
  },
});

report.onModel(() => {
  if (!parts.filter) return;
  parts.filter.value = "";
  state.sort = null;
  const names = Object.keys(PRESETS).filter((name) => !NEEDED[name] || report.column(NEEDED[name]));
  if (!names.includes(state.preset)) state.preset = "Overview";
  parts.presets.replaceChildren(
    ...names.map((name) => {
      const button = element("button", { type: "button", "aria-pressed": String(name === state.preset) }, name);
      button.addEventListener("click", () => choosePreset(name));
      return button;
    }),
  );
  choosePreset(state.preset);
});

function choosePreset(name) {
  state.preset = name;
  for (const button of parts.presets.children) button.setAttribute("aria-pressed", String(button.textContent === name));
  state.columns = PRESETS[name].filter((column) => report.column(column.name));
  if (!state.columns.includes(state.sort)) state.sort = null;
  parts.columns.replaceChildren(
    ...state.columns.map((column) => {
      const found = element("col", {});
      found.style.width = `${column.width}px`;
      return found;
    }),
  );
  parts.table.style.minWidth = `${state.columns.reduce((sum, column) => sum + column.width, 0)}px`;
  parts.table.setAttribute("aria-colcount", String(state.columns.length));
  parts.head.replaceChildren(...state.columns.map(headingCell));
  update();
}

function headingCell(column) {
  const isSorted = state.sort === column;
  const direction = state.isDescending ? "descending" : "ascending";
  const cell = element("th", {
    scope: "col",
    class: column.isNumber ? "n" : null,
    "aria-sort": isSorted ? direction : "none",
    title: column.hint,
  });
  if (!column.title) return cell;
  const mark = element(
    "span",
    { class: "mark", "aria-hidden": "true" },
    isSorted ? (state.isDescending ? " ▼" : " ▲") : "",
  );
  const button = element("button", { type: "button" }, column.title, mark);
  button.addEventListener("click", () => {
    state.isDescending = isSorted ? !state.isDescending : false;
    state.sort = column;
    parts.head.replaceChildren(...state.columns.map(headingCell));
    parts.head.children[state.columns.indexOf(column)].querySelector("button").focus();
    update();
  });
  cell.append(button);
  return cell;
}

// Filter and sort the rows. Nodes without a value are last in both directions.
function update() {
  state.rows = report.find(parts.filter.value);
  if (state.sort) {
    const keys = state.rows.map(state.sort.value);
    const order = [...keys.keys()].sort((a, b) => compare(keys[a], keys[b]) || a - b);
    state.rows = order.map((place) => state.rows[place]);
  }
  const total = report.nodeCount();
  parts.count.textContent =
    state.rows.length === total
      ? `${total.toLocaleString("en-US")} nodes`
      : `${state.rows.length.toLocaleString("en-US")} of ${total.toLocaleString("en-US")} nodes`;
  parts.table.setAttribute("aria-rowcount", String(state.rows.length + 1));
  parts.scroll.scrollTop = 0;
  parts.first = -1;
  draw();
}

function compare(a, b) {
  const isAbsent = (value) => value === null || value === undefined || value === "";
  if (isAbsent(a) || isAbsent(b)) return Number(isAbsent(a)) - Number(isAbsent(b));
  const found = typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a === b ? 0 : a - b;
  return state.isDescending ? -found : found;
}

// Create the rows that are visible.
function draw() {
  const first = Math.max(0, Math.floor(parts.scroll.scrollTop / ROW) - SPARE);
  const last = Math.min(state.rows.length, first + Math.ceil(parts.scroll.clientHeight / ROW) + 2 * SPARE);
  if (first === parts.first && last === parts.last) return;
  parts.first = first;
  parts.last = last;
  const focused = parts.body.contains(document.activeElement) ? document.activeElement.dataset.node : null;
  const rows = [];
  for (let place = first; place < last; place += 1) rows.push(rowOf(place));
  parts.above.style.height = `${first * ROW}px`;
  parts.below.style.height = `${(state.rows.length - last) * ROW}px`;
  parts.body.replaceChildren(parts.above, ...rows, parts.below);
  if (focused !== null) {
    const again = parts.body.querySelector(`a[data-node="${focused}"]`);
    (again || parts.scroll).focus({ preventScroll: true });
  }
}

function rowOf(place) {
  const index = state.rows[place];
  const cells = state.columns.map((column) =>
    element(
      "td",
      { class: column.isNumber ? "n" : null },
      [column.show(index)].flat(Infinity).map((part) => (typeof part === "number" ? String(part) : part)),
    ),
  );
  const first = report.model.verification?.first_difference;
  const isFirst = first && first.name === report.nameOf(index);
  const kind = (index === report.selected ? "selected" : "") + (isFirst ? " bad" : "");
  return element(
    "tr",
    { class: kind.trim() || null, "aria-rowindex": place + 2, "data-index": index, "data-node": index },
    cells,
  );
}

// Scroll the table, not the page, so that a node is visible.
function show(index) {
  const place = state.rows.indexOf(index);
  if (place < 0) return;
  const top = place * ROW;
  const height = parts.scroll.clientHeight - ROW;
  if (top < parts.scroll.scrollTop || top > parts.scroll.scrollTop + height - ROW) {
    parts.scroll.scrollTop = Math.max(0, top - height / 2);
    draw();
  }
}

const STEPS = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity };

function moveByKey(event) {
  const step = STEPS[event.key];
  if (step === undefined || event.target.tagName === "BUTTON" || !state.rows.length) return;
  event.preventDefault();
  const place = state.rows.indexOf(report.selected);
  const next = Math.max(0, Math.min(state.rows.length - 1, place < 0 ? 0 : place + step));
  report.select(state.rows[next]);
  show(state.rows[next]);
}
