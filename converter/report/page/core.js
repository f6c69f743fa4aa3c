// The object `report` that all scripts share: data, the shown model, the selected node, views, and DOM helpers.
// `report.constants` is from constants.py: names and numbers that the scripts share with Python.
// Data come from a model file and are untrusted: they become text nodes, never HTML.

const SVG = "http://www.w3.org/2000/svg";
const { constants } = report;
const listeners = { select: [], model: [], theme: [] };
const views = new Map();

report.data = JSON.parse(document.getElementById("report-data").textContent);
for (const model of report.data.models) {
  for (const [name, column] of Object.entries(model.nodes)) model.nodes[name] = unpackColumn(column);
}
report.model = null;
report.modelIndex = -1;
report.selected = -1;

// A column is a list, or packed: its different entries and their places, or texts without their common prefixes.
function unpackColumn(column) {
  if (Array.isArray(column)) return column;
  if (column.at) return column.at.map((place) => column.values[place]);
  const last = new Map();
  const { key } = column;
  return column.front.map((entry) => {
    if (entry === null) return null;
    const start = entry.slice(0, key);
    const rest = key + constants.prefix.digits;
    const length = parseInt(entry.slice(key, rest), constants.prefix.base);
    const text = (last.has(start) ? last.get(start) : start).slice(0, length) + entry.slice(rest);
    last.set(start, text);
    return column.lists ? text.split("\n") : text;
  });
}

// --- DOM -----------------------------------------------------------------------------------------------------------

// Create an element. A function among the attributes is an event listener; null and undefined are left out.
report.element = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);

report.svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}

// A link that selects a node of the shown model.
report.nodeLink = (index, text) => {
  const name = text === undefined ? report.nameOf(index) : text;
  const attributes = { href: `#m${report.modelIndex}n${index}`, "data-node": index, title: report.nameOf(index) };
  return report.element("a", attributes, report.breakable(report.shorten(name)));
};

// --- Nodes of the shown model --------------------------------------------------------------------------------------

// Number of nodes. Graph inputs, then graph outputs have the indices after them.
report.nodeCount = () => (report.model.nodes.name || []).length;

// The entries of a column for all nodes; null if the model has no value in it.
report.column = (name) => {
  if (!report.isColumn(name)) throw new Error(`no column ${name}`);
  return report.model.nodes[name] || null;
};

report.isColumn = (name) => constants.columns.includes(name);

report.cell = (name, index) => {
  const column = report.column(name);
  return column && index < column.length ? column[index] : null;
};

// The graph input or output with an index, as {port, kind}; null for a node.
report.portOf = (index) => {
  const place = index - report.nodeCount();
  if (place < 0) return null;
  const inputs = report.model.inputs || [];
  const outputs = report.model.outputs || [];
  if (place < inputs.length) return { port: inputs[place], kind: "input" };
  const port = outputs[place - inputs.length];
  return port ? { port, kind: "output" } : null;
};

report.nameOf = (index) => {
  const end = report.portOf(index);
  return end ? end.port.name : report.model.nodes.name[index];
};

report.opOf = (index) => {
  const end = report.portOf(index);
  return end ? end.kind : report.model.nodes.op[index];
};

// True if the first result of a node is an integer tensor.
report.isInteger = (index) => report.cell("dtype", index) in constants.integerBits;

// The word for the result of a node that equals the source's; undefined for other results.
report.equalWord = (index) => constants.equalWords[report.cell("stage", index)];

// Length of the bar of an SQNR in dB, from 0 to 1.
report.sqnrPart = (value) => Math.max(0, value || 0) / constants.fullBar;

// Nodes before and after each node, in the order of the operands.
report.producers = (index) => report.neighbors.before[index] || [];
report.users = (index) => report.neighbors.after[index] || [];

function readNeighbors(edges) {
  const before = [];
  const after = [];
  for (let place = 0; place < edges.length; place += 2) {
    const [from, to] = [edges[place], edges[place + 1]];
    after[from] ??= [];
    after[from].push(to);
    before[to] ??= [];
    before[to].push(from);
  }
  return { before, after };
}

// --- Selection, model, theme ---------------------------------------------------------------------------------------

report.onSelect = (listener) => listeners.select.push(listener);
report.onModel = (listener) => listeners.model.push(listener);
report.onTheme = (listener) => listeners.theme.push(listener);

// Select a node of the shown model; -1 selects none. Nothing is scrolled.
// `byUser` is false for the node that is selected when a model is shown.
report.select = (index, byUser = true) => {
  const isKnown = Number.isInteger(index) && index >= 0 && (index < report.nodeCount() || report.portOf(index));
  report.selected = isKnown ? index : -1;
  for (const link of document.querySelectorAll("[data-node].selected")) link.classList.remove("selected");
  if (report.selected >= 0) {
    const article = document.getElementById(`m${report.modelIndex}`);
    for (const link of article.querySelectorAll(`[data-node="${report.selected}"]`)) link.classList.add("selected");
  }
  for (const listener of listeners.select) listener(report.selected, byUser);
  for (const view of views.values()) view.select?.(report.selected);
};

// Show a model of the page: its article, and the views with its nodes.
report.showModel = (place) => {
  report.modelIndex = place;
  report.model = report.data.models[place];
  report.neighbors = readNeighbors(report.model.edges || []);
  for (const article of document.querySelectorAll("article.model")) {
    article.hidden = Number(article.dataset.model) !== place;
  }
  for (const [name, view] of views) moveView(name, view);
  for (const listener of listeners.model) listener(report.model);
  const first = (report.model.worst || [])[0];
  report.select(first === undefined ? (report.nodeCount() ? 0 : -1) : first, false);
};

// The color of a variable of the style sheet, for a canvas.
report.color = (name) => {
  if (!constants.colors.includes(name)) throw new Error(`no color ${name}`);
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
};

report.setTheme = (name) => {
  document.documentElement.dataset.theme = name;
  for (const listener of listeners.theme) listener(name);
};

report.theme = () => {
  const isDark = window.matchMedia("(prefers-color-scheme: dark)").matches;
  return document.documentElement.dataset.theme || (isDark ? "dark" : "light");
};

// --- Views ---------------------------------------------------------------------------------------------------------

// Register a view: {lead, mount(container), select(index), search(indices), color(by)}. All but `mount` are optional.
// The view is shown in the slot of its name in the article of the shown model.
report.addView = (name, view) => {
  if (!(name in constants.views)) throw new Error(`no view ${name}`);
  views.set(name, view);
  if (report.model) moveView(name, view);
};

report.view = (name) => views.get(name) || null;

function moveView(name, view) {
  const slot = document.querySelector(`#m${report.modelIndex} .slot[data-view="${name}"]`);
  if (!slot) return;
  if (!view.section) {
    const stage = report.element("div", { class: `stage stage-${name}` });
    const heading = report.element("h3", {}, constants.views[name]);
    const lead = view.lead ? report.element("p", { class: "lead" }, view.lead) : null;
    view.section = report.element("section", { class: "panel", id: `view-${name}` }, heading, lead, stage);
    slot.append(view.section);
    view.mount(stage);
  } else if (view.section.parentNode !== slot) {
    slot.append(view.section);
  }
}

// Show nodes that a search found, in all views.
report.showFound = (indices) => {
  for (const view of views.values()) view.search?.(indices);
};

// --- Text ----------------------------------------------------------------------------------------------------------

// Shorten a long name in the middle, as the text reports do.
report.shorten = (name, longest = constants.longestName) => {
  const text = String(name);
  if (text.length <= longest) return text;
  const half = Math.floor((longest - 3) / 2);
  return `${text.slice(0, longest - 3 - half)}...${text.slice(text.length - half)}`;
};

// A name as text that wraps after a slash.
report.breakable = (name) =>
  String(name)
    .split("/")
    .map((part, place) => (place ? ["/", report.element("wbr", {}), part] : part));

report.text = {
  shape: (shape) => (shape ? `[${shape.join(", ")}]` : ""),
  type: (dtype, shape) => dtype + report.text.shape(shape),
  number: (value) => (value === null || value === undefined ? "-" : Number(value.toPrecision(4)).toString()),
  decibel: (value) => (value === null || value === undefined ? "-" : value.toFixed(1)),
  share(value) {
    if (value === null || value === undefined) return "-";
    if (value === 0) return "0";
    return value >= 5e-5 ? `${(100 * value).toFixed(2)}%` : "<0.01%";
  },
  count: (value) => (value === null || value === undefined ? "-" : value.toLocaleString("en-US")),
  bytes(value) {
    if (value === null || value === undefined) return "-";
    for (const [unit, size] of constants.byteUnits) {
      if (value >= size) return `${(value / size).toFixed(1)} ${unit}`;
    }
    return `${value} bytes`;
  },
  time(seconds) {
    if (seconds === null || seconds === undefined) return "-";
    return seconds >= 1e-3 ? `${(seconds * 1e3).toPrecision(3)} ms` : `${Number((seconds * 1e6).toPrecision(3))} us`;
  },
  scale(scale, zero) {
    if (scale === null || scale === undefined) return "-";
    if (Array.isArray(scale)) return `${scale[0]} to ${scale[1]} (${scale[2]} on axis ${scale[3]})`;
    return scale + (zero ? `, zero ${Array.isArray(zero) ? zero.join(" to ") : zero}` : "");
  },
};

// --- Start ---------------------------------------------------------------------------------------------------------

const ADDRESS = /^#m(\d+)(?:n(\d+))?$/;

// Show the model and select the node that the address of the page names.
function followAddress() {
  const found = ADDRESS.exec(location.hash);
  if (!found || Number(found[1]) >= report.data.models.length) return;
  if (Number(found[1]) !== report.modelIndex) report.showModel(Number(found[1]));
  if (found[2] !== undefined) report.select(Number(found[2]));
}

function followClick(event) {
  const shown = event.target.closest("[data-show]");
  if (shown) report.showModel(Number(shown.dataset.show));
  const target = event.target.closest("[data-node]");
  if (!target) return;
  const article = target.closest("article.model");
  if (article && Number(article.dataset.model) !== report.modelIndex) report.showModel(Number(article.dataset.model));
  report.select(Number(target.dataset.node));
  if (!target.dataset.picture) return;
  event.preventDefault(); // a change of the address selects the node again, which scrolls the details to their top
  history.pushState(null, "", target.href);
  showPicture(target.dataset.picture);
}

// Scroll to a part of the details of the selected node, or to the graph.
function showPicture(name) {
  const part =
    name === "graph" ? views.get("graph")?.section : document.querySelector(`#details [data-part="${name}"]`);
  part?.scrollIntoView({ block: "nearest" });
}

function addTools() {
  const tools = document.getElementById("tools");
  if (report.data.models.length > 1) {
    const options = report.data.models.map((model, place) => report.element("option", { value: place }, model.name));
    const chooser = report.element("select", { "aria-label": "Model", id: "model" }, options);
    chooser.addEventListener("change", () => report.showModel(Number(chooser.value)));
    report.onModel(() => {
      chooser.value = String(report.modelIndex);
    });
    tools.append(chooser);
  }
  if (report.searchBox) tools.append(report.searchBox());
  const label = () => (report.theme() === "dark" ? "Light" : "Dark");
  const toggle = report.element(
    "button",
    { type: "button", id: "theme", title: "Switch between light and dark" },
    label(),
  );
  toggle.addEventListener("click", () => {
    report.setTheme(report.theme() === "dark" ? "light" : "dark");
    toggle.textContent = label();
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    toggle.textContent = label();
    for (const listener of listeners.theme) listener(report.theme());
  });
  tools.append(toggle);
}

document.documentElement.classList.add("scripted");

// Build what needs scripts, after the static content is on the screen.
report.start = () => requestAnimationFrame(() => setTimeout(start));

function start() {
  addTools();
  if (!report.data.models.length) return;
  report.showModel(0);
  followAddress();
  document.addEventListener("click", followClick);
  window.addEventListener("hashchange", followAddress);
  document.documentElement.classList.add("started");
}
