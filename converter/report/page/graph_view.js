// The graph view: a canvas that shows the visible part of the graph, with buttons, a legend, a map and a tooltip.
// graph_geometry.js computes positions, graph_colors.js colors; graph_paint.js draws, graph_input.js handles events.

const { element } = report;
const SMALL = 150; // largest number of nodes of a graph whose blocks are expanded at first
const MOST_ZOOM = 2.5;
const READABLE_ZOOM = 0.75; // smallest zoom at which names and shapes are read without effort
const LEAST_FOUND_ZOOM = 0.3; // smallest zoom at which all nodes of a search are shown
const MARGIN = 28; // around the graph when it fits, in screen pixels
const MAP = 150; // largest width and height of the map
const MAP_WIDTH = 600; // smallest width of the view and the map together in which there is a map

const view = { x: 0, y: 0, zoom: 1, width: 0, height: 0, ratio: 1 };
const state = {
  scene: null,
  layout: null,
  painter: null,
  colors: null,
  stripes: [],
  summaries: [],
  blockOf: [],
  paths: new Set(),
  expanded: new Set(),
  selected: -1,
  selectedBlock: -1,
  hovered: -1,
  found: null,
  foundBlocks: new Set(),
};
const parts = {};
let mode = "kind";
let isPending = false;
let isFitted = false;

const LEAD =
  "Drag to move; zoom with Ctrl and the wheel, or with the wheel alone after a click on the graph. " +
  "Click a node for its details, double click a block to expand or collapse it.";

report.addView("graph", { lead: LEAD, mount, select, search, color });

// State, elements and actions, for graph_input.js and for tests.
report.graph = {
  view,
  state,
  parts,
  mapSize,
  request,
  fit,
  startView,
  center,
  move,
  zoomBy,
  toggle,
  selectHere,
  say,
  paintNow: paint,
  // Position on the canvas of the box that shows a node.
  screenBox(v) {
    const { x, y, w, h, kind } = state.scene.boxes[state.scene.boxOf[v]];
    const { zoom } = view;
    return { x: (x - view.x) * zoom, y: (y - view.y) * zoom, w: w * zoom, h: h * zoom, kind };
  },
};

// --- Construction --------------------------------------------------------------------------------------------------

function mount(container) {
  const button = (label, title, action) => element("button", { type: "button", title, click: action }, label);
  parts.canvas = element("canvas", { tabindex: "0", role: "application", "aria-roledescription": "graph" });
  parts.context = parts.canvas.getContext("2d");
  parts.map = element("canvas", { class: "graph-map", "aria-hidden": "true" });
  parts.mapMark = element("div", { class: "graph-map-mark", "aria-hidden": "true" });
  parts.mapBox = element("div", { class: "graph-map-box", hidden: true }, parts.map, parts.mapMark);
  parts.tip = element("div", { class: "graph-tip", hidden: true, role: "tooltip" });
  parts.hint = element("div", { class: "graph-hint", hidden: true, "aria-hidden": "true" });
  parts.live = element("p", { class: "graph-live", "aria-live": "polite" });
  parts.legend = element("ul", { class: "graph-legend", "aria-label": "Legend" });
  parts.color = element("select", { "aria-label": "Color by", change: () => color(parts.color.value) });
  parts.blocks = element(
    "select",
    { "aria-label": "Blocks by", change: showBlocks },
    element("option", { value: "layout" }, "Blocks by source"),
    element("option", { value: "groups" }, "Blocks by chip group"),
  );
  parts.expand = button("Expand all", "Show the nodes of all blocks", () => setAll(true));
  parts.collapse = button("Collapse all", "Show each block as one box", () => setAll(false));
  parts.tools = element(
    "div",
    { class: "graph-tools" },
    button("Fit", "Show the whole graph (key 0)", fit),
    button("+", "Zoom in (key +, or Ctrl and the wheel)", () => zoomBy(1.3)),
    button("\u2212", "Zoom out (key -, or Ctrl and the wheel)", () => zoomBy(1 / 1.3)),
    parts.expand,
    parts.collapse,
    parts.blocks,
    element("label", {}, element("span", {}, "Color by"), parts.color),
    parts.legend,
  );
  parts.stage = element("div", { class: "graph-stage" }, parts.canvas, parts.tip, parts.hint);
  parts.row = element("div", { class: "graph-row" }, parts.stage, parts.mapBox);
  container.classList.add("graph-container");
  container.append(parts.tools, parts.row, parts.live);
  report.graphInput.listen(report.graph);
  new ResizeObserver(resize).observe(parts.stage);
  report.onModel(showModel);
  report.onSelect((index, byUser) => {
    if (byUser !== false && !state.isOwn) reveal(index);
  });
  report.onTheme(recolor);
  showModel();
}

function showModel() {
  const model = report.model;
  const count = report.nodeCount();
  parts.blocks.hidden = !model.layout?.groups;
  parts.blocks.value = "layout";
  parts.color.replaceChildren(
    ...report.graphColors.modes().map(([value, title]) => element("option", { value }, title)),
  );
  if (![...parts.color.options].some((option) => option.value === mode)) mode = "kind";
  parts.color.value = mode;
  parts.canvas.setAttribute(
    "aria-label",
    "Graph with " +
      count +
      " nodes. Arrow keys move, plus and minus zoom, 0 fits, Shift with an arrow key goes to a " +
      "neighbor, Enter expands or collapses a block.",
  );
  setLayout(model.layout || null);
}

function showBlocks() {
  setLayout(parts.blocks.value === "groups" ? report.model.layout.groups : report.model.layout);
}

function setLayout(layout) {
  const blocks = layout ? layout.blocks : [];
  Object.assign(state, {
    layout,
    selectedBlock: -1,
    hovered: -1,
    found: null,
    foundBlocks: new Set(),
    blockOf: [],
    expanded: new Set(),
  });
  blocks.forEach((block, place) => {
    for (const v of block.nodes) state.blockOf[v] = place;
  });
  state.summaries = blocks.map((block) => summary(block.nodes));
  if (report.nodeCount() <= SMALL) state.expanded = new Set(blocks.keys());
  parts.expand.hidden = parts.collapse.hidden = !blocks.length;
  parts.tools.hidden = parts.row.hidden = !layout;
  isFitted = false;
  state.scene = null;
  rebuild();
  recolor();
  startView();
}

// Operators of a block, the most frequent first.
function summary(nodes) {
  const counts = new Map();
  for (const v of nodes) counts.set(report.opOf(v), (counts.get(report.opOf(v)) || 0) + 1);
  const most = [...counts].sort((a, b) => b[1] - a[1]);
  return (
    most
      .slice(0, 3)
      .map(([op, count]) => `${count} ${op}`)
      .join(", ") + (most.length > 3 ? ", \u2026" : "")
  );
}

function rebuild() {
  if (!state.layout) return;
  state.scene = report.graphGeometry.build(state.layout, report.nodeCount(), state.expanded);
  tracePaths();
  drawMap();
  request();
}

function recolor() {
  if (!state.layout) return;
  state.colors = report.graphPaint.palette();
  state.painter = report.graphColors.painter(mode);
  state.stripes = state.layout.blocks.map((block) => stripes(block.nodes));
  const items = state.painter.legend.map(([name, color]) => {
    const swatch = element("span", { class: "swatch", "aria-hidden": "true" });
    swatch.style.background = color;
    return element("li", {}, swatch, name);
  });
  parts.legend.replaceChildren(...items);
  drawMap();
  request();
}

// Colors of a collapsed block: shares of its nodes by class, or the color of the worst node.
function stripes(nodes) {
  const counts = new Map();
  for (const v of nodes) {
    const color = state.painter.colorOf(v);
    if (color) counts.set(color, (counts.get(color) || 0) + 1);
  }
  const sum = [...counts.values()].reduce((total, count) => total + count, 0);
  if (!state.painter.isClass) {
    const worst = state.painter.worstOf(nodes);
    return worst === null ? [] : [{ color: state.painter.colorOf(worst), share: 1 }];
  }
  return [...counts].sort((a, b) => b[1] - a[1]).map(([color, count]) => ({ color, share: count / sum }));
}

// --- Painting ------------------------------------------------------------------------------------------------------

function request() {
  if (isPending) return;
  isPending = true;
  requestAnimationFrame(() => {
    isPending = false;
    paint();
  });
}

function paint() {
  if (!state.scene || !view.width) return;
  report.graphPaint.draw(parts.context, view, state);
  const { scene } = state;
  const size = mapSize();
  const [sx, sy] = [size.width / scene.width, size.height / scene.height];
  // A transform moves the mark without a layout of the page, which is slow; its size changes only with the zoom.
  const mark = parts.mapMark.style;
  setStyle(mark, "transform", `translate(${view.x * sx}px,${view.y * sy}px)`);
  setStyle(mark, "width", `${Math.max(3, (view.width / view.zoom) * sx).toFixed(2)}px`);
  setStyle(mark, "height", `${Math.max(3, (view.height / view.zoom) * sy).toFixed(2)}px`);
}

function setStyle(style, name, value) {
  if (style[name] !== value) style[name] = value;
}

function resize() {
  if (!measure()) return;
  drawMap();
  if (!isFitted) startView();
  keepInView();
  paint(); // at once: a canvas is empty after a change of its size
}

// Read the size of the stage, which the map changes. Return false if the graph is not shown.
function measure() {
  const { clientWidth, clientHeight } = parts.stage;
  if (!clientWidth || !clientHeight) return false;
  const ratio = window.devicePixelRatio || 1;
  if (view.width === clientWidth && view.height === clientHeight && view.ratio === ratio) return true;
  Object.assign(view, { width: clientWidth, height: clientHeight, ratio });
  parts.canvas.width = Math.round(clientWidth * ratio);
  parts.canvas.height = Math.round(clientHeight * ratio);
  return true;
}

// The map is beside the view, and shown if the graph is much larger than both. Its height and width are scaled
// separately, because a deep network is a thin line otherwise.
function mapSize() {
  const { width, height } = state.scene;
  const scale = Math.min(MAP / width, Math.min(MAP, view.height - 40) / height);
  return { width: Math.max(36, width * scale), height: Math.max(36, height * scale), ratio: view.ratio };
}

function drawMap() {
  if (!state.scene || !view.width || !state.colors) return;
  const { clientWidth } = parts.row; // not the width of the view, which depends on the map
  const isLarge = state.scene.width * state.scene.height > 6 * clientWidth * view.height;
  parts.mapBox.hidden = !isLarge || clientWidth < MAP_WIDTH;
  if (parts.mapBox.hidden) return;
  const size = mapSize();
  parts.map.width = Math.round(size.width * size.ratio);
  parts.map.height = Math.round(size.height * size.ratio);
  parts.map.style.width = `${size.width}px`;
  parts.map.style.height = `${size.height}px`;
  report.graphPaint.drawMap(parts.map.getContext("2d"), size, state);
}

// --- Position ------------------------------------------------------------------------------------------------------

function fitZoom() {
  const { width, height } = state.scene;
  return Math.min((view.width - 2 * MARGIN) / width, (view.height - 2 * MARGIN) / height, 1.2);
}

function fit() {
  if (!state.scene) return;
  view.zoom = fitZoom();
  center(state.scene.width / 2, state.scene.height / 2);
}

// Show the whole graph if it is readable then, else its top: the boxes there in the middle, or around the first input.
function startView() {
  if (!state.scene || !view.width || !measure()) return;
  isFitted = true;
  const { boxes, width, height } = state.scene;
  if (fitZoom() >= READABLE_ZOOM) return fit();
  view.zoom = Math.max(READABLE_ZOOM, Math.min(1, (view.width - 2 * MARGIN) / width));
  const [shown, tall, margin] = [view.width, view.height, MARGIN].map((length) => length / view.zoom);
  view.y = height + 2 * margin < tall ? height / 2 - tall / 2 : -margin;
  const { left, right } = boundsOf(boxes.filter((box) => box.y < view.y + tall));
  if (right - left + 2 * margin <= shown) view.x = (left + right - shown) / 2;
  else {
    const first = boxes[firstBox()];
    view.x = Math.max(-margin, Math.min(width + margin - shown, first.x + first.w / 2 - shown / 2));
  }
  request();
}

// The box of the first input that is used; without one, the topmost box.
function firstBox() {
  const inputs = (report.model.inputs || []).map((_, place) => report.nodeCount() + place);
  const used = inputs.find((v) => report.users(v).length && state.scene.boxOf[v] !== undefined);
  if (used !== undefined) return state.scene.boxOf[used];
  const tops = state.scene.boxes.map((box) => box.y);
  return tops.indexOf(Math.min(...tops));
}

function center(x, y) {
  view.x = x - view.width / view.zoom / 2;
  view.y = y - view.height / view.zoom / 2;
  keepInView();
  request();
}

// A part of the graph stays visible.
function keepInView() {
  if (!state.scene) return;
  const clamp = (value, size, length) =>
    Math.max(-length / view.zoom + 60 / view.zoom, Math.min(size - 60 / view.zoom, value));
  view.x = clamp(view.x, state.scene.width, view.width);
  view.y = clamp(view.y, state.scene.height, view.height);
}

function move(dx, dy) {
  view.x += dx / view.zoom;
  view.y += dy / view.zoom;
  keepInView();
  request();
}

function zoomBy(factor, x = view.width / 2, y = view.height / 2) {
  if (!state.scene) return;
  const zoom = Math.max(Math.min(fitZoom() * 0.8, 0.2), Math.min(MOST_ZOOM, view.zoom * factor));
  view.x += x / view.zoom - x / zoom;
  view.y += y / view.zoom - y / zoom;
  view.zoom = zoom;
  keepInView();
  request();
}

// --- Blocks --------------------------------------------------------------------------------------------------------

function setAll(isExpanded) {
  if (!state.layout) return;
  state.expanded = new Set(isExpanded ? state.layout.blocks.keys() : []);
  rebuild();
  startView();
  say(isExpanded ? "All blocks are expanded" : "All blocks are collapsed");
}

// Expand or collapse a block; its top stays at its position on the screen.
function toggle(block) {
  const before = state.scene.boxes[state.scene.frameOf.get(block)];
  const [x, y] = [before.x + before.w / 2, Math.max(before.y, view.y)];
  if (!state.expanded.delete(block)) state.expanded.add(block);
  rebuild();
  const after = state.scene.boxes[state.scene.frameOf.get(block)];
  view.x += after.x + after.w / 2 - x;
  view.y += after.y - y;
  state.hovered = -1;
  keepInView();
  say(`Block ${state.layout.blocks[block].name}${state.expanded.has(block) ? " is expanded" : " is collapsed"}`);
}

// --- Selection -----------------------------------------------------------------------------------------------------

function select(index) {
  state.selected = index;
  if (index >= 0) state.selectedBlock = -1;
  tracePaths();
  request();
}

// Select a node in all views. The graph stays where it is, unless the node is outside of the view.
function selectHere(v) {
  state.isOwn = true;
  report.select(v);
  state.isOwn = false;
  if (v < 0) return;
  const shape = report.portOf(v) ? "" : `, ${report.text.shape(report.cell("shape", v))}`;
  say(`${report.opOf(v)} ${report.nameOf(v)}${shape}`);
}

// Show a node that was selected elsewhere.
function reveal(index) {
  if (index < 0 || !state.scene) return;
  const block = state.blockOf[index];
  if (block !== undefined && !state.expanded.has(block)) {
    state.expanded.add(block);
    rebuild();
  }
  const box = state.scene.boxes[state.scene.boxOf[index]];
  if (!box) return;
  view.zoom = Math.max(view.zoom, Math.min(0.8, MOST_ZOOM));
  center(box.x + box.w / 2, box.y + box.h / 2);
  say(`${report.opOf(index)} ${report.nameOf(index)}`);
}

// The lines to and from the selected node: its own nets, and the lines from the producers of its operands.
function tracePaths() {
  const { scene, selected } = state;
  state.paths = new Set();
  if (!scene || selected < 0) return;
  for (const line of scene.leaving.get(selected) || []) state.paths.add(line);
  const place = scene.boxOf[selected];
  if (place === undefined || scene.boxes[place].v !== selected) return;
  for (let line of scene.arrivals.get(place) || []) {
    while (line !== undefined && line >= 0 && !state.paths.has(line)) {
      state.paths.add(line);
      line = scene.lines[line].parent;
    }
  }
}

// Highlight the nodes that a search found, and show the first ones; null ends the search.
function search(indices) {
  state.found = indices?.length ? new Set(indices) : null;
  state.foundBlocks = new Set((indices || []).map((v) => state.blockOf[v]).filter((block) => block !== undefined));
  drawMap();
  request();
  if (!state.found || !state.scene || !view.width) return;
  const boxes = indices.map((v) => state.scene.boxes[state.scene.boxOf[v]]).filter(Boolean);
  if (!boxes.length) return;
  let shown = boxes;
  let bounds = boundsOf(shown);
  const fitting = (area) =>
    Math.min(view.width / (area.right - area.left + 80), view.height / (area.bottom - area.top + 80));
  if (fitting(bounds) < LEAST_FOUND_ZOOM) {
    shown = boxes.slice(0, 1);
    bounds = boundsOf(shown);
  }
  view.zoom = Math.max(LEAST_FOUND_ZOOM, Math.min(1, fitting(bounds)));
  center((bounds.left + bounds.right) / 2, (bounds.top + bounds.bottom) / 2);
  say(`${indices.length + (indices.length === 1 ? " node is" : " nodes are")} highlighted`);
}

function boundsOf(boxes) {
  const bounds = { left: Infinity, top: Infinity, right: -Infinity, bottom: -Infinity };
  for (const { x, y, w, h } of boxes) {
    bounds.left = Math.min(bounds.left, x);
    bounds.top = Math.min(bounds.top, y);
    bounds.right = Math.max(bounds.right, x + w);
    bounds.bottom = Math.max(bounds.bottom, y + h);
  }
  return bounds;
}

function color(by) {
  mode = by;
  parts.color.value = by;
  recolor();
}

function say(text) {
  parts.live.textContent = text;
}
