// Mouse, touch and keys of the graph view.
//
// Mouse: drag moves, wheel zooms (after a click, or with Ctrl), click selects, double click expands or collapses a
// block.
// Keys: arrows move, + and - zoom, 0 fits, Enter expands or collapses, Shift with arrows goes to neighbors.

const { element } = report;
const { BLOCK, FRAME, boxAt } = report.graphGeometry;
const STEP = 80; // of an arrow key, in screen pixels
const WHEEL_HINT = "Click the graph or hold Ctrl to zoom with the wheel";
const KEY_HINT =
  "Arrow keys move, + and \u2212 zoom, 0 fits, Shift and an arrow key go to a neighbor, Enter expands a block";
const CLICK = 5; // largest movement of a click, in screen pixels

report.graphInput = { listen };

// Set by `listen`: state and elements of the view, and its actions.
let view;
let state;
let parts;
let act;

function listen(graph) {
  ({ view, state, parts } = graph);
  act = graph;
  const { canvas } = parts;
  const touches = new Map();
  let moved = 0;
  let hintTimer = 0;

  canvas.addEventListener("pointerdown", (event) => {
    touches.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
    moved = touches.size > 1 ? CLICK + 1 : 0;
    hideTip();
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const last = touches.get(event.pointerId);
    if (!last) return hover(event);
    const other = [...touches].find(([id]) => id !== event.pointerId);
    const [dx, dy] = [event.offsetX - last.x, event.offsetY - last.y];
    moved += Math.abs(dx) + Math.abs(dy);
    touches.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
    if (!other) {
      canvas.classList.toggle("moving", moved > CLICK);
      return act.move(-dx, -dy);
    }
    const { x, y } = other[1];
    const before = Math.hypot(last.x - x, last.y - y);
    const now = Math.hypot(event.offsetX - x, event.offsetY - y);
    act.move(-dx / 2, -dy / 2);
    return act.zoomBy(now / Math.max(before, 1), (event.offsetX + x) / 2, (event.offsetY + y) / 2);
  });
  const end = (event) => {
    if (!touches.delete(event.pointerId)) return;
    canvas.classList.remove("moving");
    if (event.type === "pointerup" && moved <= CLICK && !touches.size && event.button === 0) click(event);
  };
  canvas.addEventListener("pointerup", end);
  canvas.addEventListener("pointercancel", end);
  canvas.addEventListener("pointerleave", () => {
    hideTip();
    setHovered(-1);
  });
  canvas.addEventListener("dblclick", (event) => {
    const block = blockAt(event);
    if (block >= 0) act.toggle(block);
  });
  canvas.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey && !event.metaKey && document.activeElement !== canvas) {
        showHint(WHEEL_HINT);
        clearTimeout(hintTimer);
        hintTimer = setTimeout(hideHint, 1800);
        return;
      }
      event.preventDefault();
      const lines = event.deltaMode === 1 ? 16 : 1;
      const speed = event.ctrlKey && Math.abs(event.deltaY) < 30 ? 0.01 : 0.0016;
      act.zoomBy(Math.exp(-event.deltaY * lines * speed), event.offsetX, event.offsetY);
    },
    { passive: false },
  );
  canvas.addEventListener("keydown", onKey);
  // Browsers match :focus-visible after Tab, and not after a click.
  canvas.addEventListener("focus", () => {
    clearTimeout(hintTimer);
    if (canvas.matches(":focus-visible")) showHint(KEY_HINT);
  });
  canvas.addEventListener("blur", hideHint);
  canvas.addEventListener("pointerdown", hideHint);
  listenToMap();
}

function showHint(text) {
  parts.hint.textContent = text;
  parts.hint.hidden = false;
}

function hideHint() {
  parts.hint.hidden = true;
}

function listenToMap() {
  const go = (event) => {
    const size = act.mapSize();
    act.center((event.offsetX / size.width) * state.scene.width, (event.offsetY / size.height) * state.scene.height);
  };
  parts.map.addEventListener("pointerdown", (event) => {
    parts.map.setPointerCapture(event.pointerId);
    go(event);
  });
  parts.map.addEventListener("pointermove", (event) => {
    if (event.buttons) go(event);
  });
}

function scenePoint(event) {
  return [view.x + event.offsetX / view.zoom, view.y + event.offsetY / view.zoom];
}

// The block that a double click expands or collapses: a collapsed one, or the title and empty area of an expanded one.
function blockAt(event) {
  const box = state.scene?.boxes[boxAt(state.scene, ...scenePoint(event))];
  return box && (box.kind === BLOCK || box.kind === FRAME) ? box.block : -1;
}

function click(event) {
  if (!state.scene) return;
  const [x, y] = scenePoint(event);
  const box = state.scene.boxes[boxAt(state.scene, x, y)];
  if (!box) return;
  if (box.v >= 0) return void act.selectHere(box.v);
  const { titleHeight, titleLeft, titleTop } = report.graphPaint;
  const height = titleHeight(box, view.zoom);
  const isSign =
    box.kind === BLOCK
      ? x > box.x + box.w - 36 && y < box.y + 40
      : x < titleLeft(view, box, height) + height * 1.2 && y < titleTop(view, box, height) + height;
  if (isSign) return void act.toggle(box.block);
  state.selectedBlock = box.block;
  act.request();
  const block = state.layout.blocks[box.block];
  act.say(`Block ${block.name}, ${block.nodes.length} nodes: ${state.summaries[box.block]}`);
}

function setHovered(place) {
  if (place === state.hovered) return;
  state.hovered = place;
  act.request();
}

function hover(event) {
  if (!state.scene || event.pointerType === "touch") return;
  const place = boxAt(state.scene, ...scenePoint(event));
  setHovered(place);
  const box = state.scene.boxes[place];
  if (!box || box.kind === FRAME) return void hideTip();
  parts.canvas.style.cursor = "pointer";
  parts.tip.replaceChildren(...tipOf(box).map((text, i) => element(i ? "span" : "b", {}, text)));
  parts.tip.hidden = false;
  const left = event.offsetX + 16;
  parts.tip.style.left = `${Math.max(4, Math.min(left, view.width - parts.tip.offsetWidth - 4))}px`;
  const below = event.offsetY + 18;
  const isLow = below + parts.tip.offsetHeight > view.height;
  parts.tip.style.top = `${isLow ? event.offsetY - parts.tip.offsetHeight - 12 : below}px`;
}

function hideTip() {
  parts.tip.hidden = true;
  parts.canvas.style.cursor = "";
}

function tipOf(box) {
  if (box.v < 0) {
    const block = state.layout.blocks[box.block];
    const value = state.painter.blockText(block.nodes);
    return [block.name, `${block.nodes.length} nodes: ${state.summaries[box.block]}`, value].filter(Boolean);
  }
  const end = report.portOf(box.v);
  if (end) return [end.kind, end.port.name, report.text.type(end.port.dtype, end.port.shape)];
  const type = report.text.type(report.cell("dtype", box.v) || "", report.cell("shape", box.v));
  return [report.opOf(box.v), report.shorten(report.nameOf(box.v)), type, state.painter.textOf(box.v)].filter(Boolean);
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || !state.scene) return;
  const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  const arrow = arrows[event.key];
  if (arrow && event.shiftKey) step(...arrow);
  else if (arrow) act.move(arrow[0] * STEP, arrow[1] * STEP);
  else if (event.key === "PageDown") act.move(0, view.height * 0.8);
  else if (event.key === "PageUp") act.move(0, -view.height * 0.8);
  else if (event.key === "+" || event.key === "=") act.zoomBy(1.25);
  else if (event.key === "-") act.zoomBy(1 / 1.25);
  else if (event.key === "0") act.fit();
  else if (event.key === "Home") act.startView();
  else if (event.key === "Enter") enter();
  else if (event.key === "Escape") act.selectHere(-1);
  else return;
  event.preventDefault();
}

// Expand or collapse the selected block, or the block of the selected node.
function enter() {
  const block = state.selectedBlock >= 0 ? state.selectedBlock : state.blockOf[state.selected];
  if (block === undefined) return;
  act.toggle(block);
  if (state.expanded.has(block) && state.selectedBlock >= 0) {
    act.selectHere(state.layout.blocks[block].nodes[0]);
  } else if (!state.expanded.has(block)) {
    state.selectedBlock = block;
    act.request();
  }
}

// Select a neighbor of the selected node: a producer above, a user below, or the next box in the same row.
function step(dx, dy) {
  const { scene, selected } = state;
  const box = scene.boxes[scene.boxOf[selected]];
  let next;
  if (!box) next = 0;
  else if (dy) next = (dy < 0 ? report.producers(selected) : report.users(selected))[0];
  else {
    const row = scene.boxes.filter((other) => other.v >= 0 && other.block === box.block && other.row === box.row);
    row.sort((a, b) => a.x - b.x);
    const beside = row[row.indexOf(box) + dx];
    next = beside?.v;
  }
  if (next === undefined) return;
  act.selectHere(next);
  follow(next);
}

// Move the view as far as needed to show a node, and expand its block.
function follow(v) {
  const block = state.blockOf[v];
  if (block !== undefined && !state.expanded.has(block)) act.toggle(block);
  const { x, y, w, h } = act.screenBox(v);
  const beyond = (from, size, length) => Math.min(0, from - 40) + Math.max(0, from + size + 40 - length);
  act.move(beyond(x, w, view.width), beyond(y, h, view.height));
}
