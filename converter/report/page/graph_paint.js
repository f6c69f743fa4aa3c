// Drawing of the graph view on a canvas: what is visible, with as much detail as the zoom allows.

const { NODE, PORT, FRAME, TITLE } = report.graphGeometry;
const HEAD = 21; // height of the colored head of a box
const TEXT_ZOOM = 0.7; // from this zoom on, boxes have a name and a shape
const NAME_ZOOM = 0.24; // from this zoom on, boxes have their operator
const ROUND_ZOOM = 0.1; // from this zoom on, boxes are round
const LABEL_ZOOM = 0.8; // from this zoom on, lines have the shape of their tensor
const LABEL = { size: 9.5, width: 110, gap: 6 }; // of the shape beside a line: largest width, distance from the line
const LEAST_TEXT = 6.5; // smallest height of a text, in screen pixels
const LEAST_CONTRAST = 3.5; // of bold text in the color of the ground, which is used where possible
const FAMILY = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
const SANS = { weight: "", family: FAMILY };
const BOLD = { weight: "600 ", family: FAMILY };
const MONO = { weight: "", family: "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" };

report.graphPaint = { draw, drawMap, labelsOf, palette, titleHeight, titleTop, titleLeft };

// Colors of the style sheet for the canvas.
function palette() {
  return Object.fromEntries(report.constants.colors.map((name) => [name, report.color(name)]));
}

// Draw the scene. `view` has x, y (scene coordinates of the top left corner), zoom, width, height and ratio;
// `state` has scene, layout, painter, colors, selected, selectedBlock, hovered, found, paths.
function draw(context, view, state) {
  const { zoom } = view;
  const { scene, colors } = state;
  context.setTransform(view.ratio, 0, 0, view.ratio, 0, 0);
  context.fillStyle = colors.ground;
  context.fillRect(0, 0, view.width, view.height);
  context.setTransform(
    view.ratio * zoom,
    0,
    0,
    view.ratio * zoom,
    -view.x * zoom * view.ratio,
    -view.y * zoom * view.ratio,
  );
  const right = view.x + view.width / zoom;
  const bottom = view.y + view.height / zoom;
  const least = zoom < ROUND_ZOOM ? 0.7 / zoom : 0; // lines within a pixel are left out
  const boxes = [];
  const frames = [];
  const lines = [];
  report.graphGeometry.visible(
    scene,
    view.y,
    bottom,
    (box, place) => {
      if (box.x <= right && box.x + box.w >= view.x && box.y <= bottom && box.y + box.h >= view.y) {
        (box.kind === FRAME ? frames : boxes).push(place);
      }
    },
    (line, place) => {
      const isInside = Math.min(line.x0, line.x1) <= right && Math.max(line.x0, line.x1) >= view.x && line.y1 >= view.y;
      if (isInside && (line.y1 - line.y0 > least || Math.abs(line.x1 - line.x0) > least)) lines.push(place);
    },
  );
  for (const place of frames) drawFrame(context, zoom, state, scene.boxes[place]);
  drawLines(context, zoom, state, lines);
  if (zoom >= LABEL_ZOOM) drawLabels(context, state, lines);
  if (zoom < ROUND_ZOOM) drawDots(context, zoom, state, boxes);
  else for (const place of boxes) drawBox(context, zoom, state, place);
  for (const place of frames) drawTitle(context, view, state, scene.boxes[place], place);
  drawMarks(context, zoom, state, boxes.concat(frames));
}

// --- Boxes ---------------------------------------------------------------------------------------------------------

function rounded(context, x, y, w, h, radius) {
  context.beginPath();
  context.roundRect(x, y, w, h, radius);
}

function isDim(state, box) {
  if (!state.found) return false;
  return box.v >= 0 ? !state.found.has(box.v) : !state.foundBlocks.has(box.block);
}

function colorOf(state, box) {
  if (box.v >= 0) return state.painter.colorOf(box.v);
  const stripes = state.stripes[box.block];
  return stripes.length ? stripes[0].color : null;
}

// Far out, boxes are rectangles; of those in one pixel, one is drawn.
function drawDots(context, zoom, state, boxes) {
  const groups = new Map();
  let before = -1;
  for (const place of boxes) {
    const box = state.scene.boxes[place];
    const pixel = Math.floor(box.y * zoom) * 100003 + Math.floor(box.x * zoom);
    if (pixel === before) continue;
    before = pixel;
    const color = (!isDim(state, box) && colorOf(state, box)) || state.colors.line;
    if (!groups.has(color)) groups.set(color, []);
    groups.get(color).push(box);
  }
  const least = 1 / zoom;
  for (const [color, group] of groups) {
    context.fillStyle = color;
    for (const box of group) context.fillRect(box.x, box.y, Math.max(box.w, least), Math.max(box.h, least));
  }
}

function drawBox(context, zoom, state, place) {
  const box = state.scene.boxes[place];
  context.globalAlpha = isDim(state, box) ? 0.4 : 1;
  if (box.kind === NODE) drawNode(context, zoom, state, box, place === state.hovered);
  else if (box.kind === PORT) drawPort(context, zoom, state, box, place === state.hovered);
  else drawBlock(context, zoom, state, box, place === state.hovered);
  context.globalAlpha = 1;
}

function outline(context, zoom, colors, isHovered) {
  context.lineWidth = Math.max(1, 1 / zoom);
  context.strokeStyle = isHovered ? colors.mark : colors.line;
  context.stroke();
}

function drawNode(context, zoom, state, box, isHovered) {
  const { colors } = state;
  const { x, y, w, h } = box;
  const color = state.painter.colorOf(box.v);
  rounded(context, x, y, w, h, 7);
  if (zoom < TEXT_ZOOM) {
    context.fillStyle = color || colors.band;
    context.fill();
    if (!color) outline(context, zoom, colors, isHovered);
    if (zoom < NAME_ZOOM) return;
    context.fillStyle = color ? onColor(color, colors) : colors.ink;
    const size = Math.min(26, 11.5 / zoom);
    write(context, BOLD, size, report.opOf(box.v), x + w / 2, y + h / 2 + size * 0.35, w - 12, "center");
    return;
  }
  context.fillStyle = colors.ground;
  context.fill();
  outline(context, zoom, colors, isHovered);
  context.fillStyle = color || colors.line;
  context.beginPath();
  context.roundRect(x, y, w, HEAD, [7, 7, 0, 0]);
  context.fill();
  const dtype = report.cell("dtype", box.v) || "";
  context.fillStyle = color ? onColor(color, colors) : colors.ink;
  const tag = state.painter.textOf(box.v) || dtype;
  const tagWidth = write(context, SANS, 10, tag, x + w - 8, y + 14.5, w / 2, "right");
  write(context, BOLD, 12, report.opOf(box.v), x + 9, y + 15, w - 24 - tagWidth, "left");
  context.fillStyle = colors.ink;
  write(context, SANS, 11, report.nameOf(box.v), x + 9, y + 35, w - 18, "left");
  context.fillStyle = colors.soft;
  write(context, MONO, 10.5, report.text.shape(report.cell("shape", box.v)), x + 9, y + 49, w - 18, "left");
}

function drawPort(context, zoom, state, box, isHovered) {
  const { colors } = state;
  rounded(context, box.x, box.y, box.w, box.h, box.h / 2);
  context.fillStyle = colors.band;
  context.fill();
  context.lineWidth = Math.max(1.2, 1 / zoom);
  context.strokeStyle = isHovered ? colors.mark : colors.soft;
  context.stroke();
  if (zoom < NAME_ZOOM) return;
  context.fillStyle = colors.ink;
  const size = Math.min(19, Math.max(11.5, 10 / zoom));
  write(
    context,
    BOLD,
    size,
    report.nameOf(box.v),
    box.x + box.w / 2,
    box.y + box.h / 2 + size * 0.35,
    box.w - 24,
    "center",
  );
}

function drawBlock(context, zoom, state, box, isHovered) {
  const { colors } = state;
  const { x, y, w, h } = box;
  const stripes = state.stripes[box.block];
  if (zoom >= ROUND_ZOOM * 2) {
    rounded(context, x + 5, y + 5, w, h, 9); // a second sheet behind the first
    context.fillStyle = colors.band;
    context.fill();
    outline(context, zoom, colors, isHovered);
  }
  rounded(context, x, y, w, h, 9);
  context.fillStyle = colors.ground;
  context.fill();
  context.save();
  context.clip();
  let from = x;
  for (const { color, share } of stripes) {
    context.fillStyle = color || colors.line;
    context.fillRect(from, y, w * share + 0.5, zoom < NAME_ZOOM ? h : 8);
    from += w * share;
  }
  context.restore();
  rounded(context, x, y, w, h, 9);
  outline(context, zoom, colors, isHovered);
  if (zoom < NAME_ZOOM) return;
  const name = state.layout.blocks[box.block].name;
  context.fillStyle = colors.ink;
  if (zoom < TEXT_ZOOM) {
    const size = Math.min(24, 11.5 / zoom);
    write(context, BOLD, size, name, x + w / 2, y + h / 2 + 4 + size * 0.35, w - 16, "center");
    return;
  }
  write(context, BOLD, 13, name, x + 12, y + 29, w - 46, "left");
  context.fillStyle = colors.soft;
  const nodes = state.layout.blocks[box.block].nodes;
  const text = state.painter.blockText(nodes) || state.summaries[box.block];
  write(context, SANS, 11, `${nodes.length} nodes, ${text}`, x + 12, y + 48, w - 24, "left", true);
  drawSign(context, colors, x + w - 20, y + 25, false);
}

// The sign of a block: plus expands it, minus collapses it.
function drawSign(context, colors, x, y, isExpanded) {
  context.lineWidth = 1.6;
  context.strokeStyle = colors.soft;
  context.beginPath();
  context.moveTo(x - 4.5, y);
  context.lineTo(x + 4.5, y);
  if (!isExpanded) {
    context.moveTo(x, y - 4.5);
    context.lineTo(x, y + 4.5);
  }
  context.stroke();
}

function drawFrame(context, zoom, state, box) {
  rounded(context, box.x, box.y, box.w, box.h, 10);
  context.fillStyle = state.colors.band;
  context.fill();
  context.lineWidth = Math.max(1, 1 / zoom);
  context.strokeStyle = state.colors.line;
  context.stroke();
}

// Title bar of an expanded block. Lines enter the block under it. While the top of the block is above the view, the
// title stays at the edge of the view, and so does its text at the left.
function drawTitle(context, view, state, box, place) {
  const { zoom } = view;
  if (zoom < 0.14) return;
  const { colors } = state;
  const height = titleHeight(box, zoom);
  const y = titleTop(view, box, height);
  const x = titleLeft(view, box, height);
  const size = height * 0.52;
  context.beginPath();
  context.roundRect(box.x, y, box.w, height, [10, 10, 0, 0]);
  context.fillStyle = place === state.hovered ? colors.tint : colors.line;
  context.fill();
  if (size * zoom < LEAST_TEXT) return;
  context.save();
  context.translate(x + height * 0.55, y + height / 2);
  context.scale(height / TITLE, height / TITLE);
  drawSign(context, colors, 0, 0, true);
  context.restore();
  context.fillStyle = colors.ink;
  const width = box.x + box.w - x - height * 1.3;
  write(context, BOLD, size, state.layout.blocks[box.block].name, x + height, y + height * 0.68, width, "left");
}

// The title is larger when the view is far away, as far as there is space above the first box.
function titleHeight(box, zoom) {
  return Math.min(TITLE * 1.3, Math.max(TITLE, 15 / zoom), box.h / 3);
}

function titleTop(view, box, height) {
  return Math.min(Math.max(box.y, view.y), box.y + box.h - height);
}

function titleLeft(view, box, height) {
  return Math.max(box.x, Math.min(view.x, box.x + box.w - 8 * height));
}

// --- Lines ---------------------------------------------------------------------------------------------------------

function drawLines(context, zoom, state, places) {
  const { colors, scene, paths } = state;
  const marked = [];
  const plain = [];
  for (const place of places) (paths.has(place) ? marked : plain).push(place);
  context.globalAlpha = paths.size || state.found ? 0.5 : 0.75;
  stroke(context, zoom, scene, plain, colors.soft, Math.max(1.2, Math.min(1 / zoom, 6)));
  context.globalAlpha = 1;
  if (marked.length) stroke(context, zoom, scene, marked, colors.mark, Math.max(2, Math.min(2 / zoom, 10)));
}

function stroke(context, zoom, scene, places, color, width) {
  context.strokeStyle = color;
  context.fillStyle = color;
  context.lineWidth = width;
  const arrows = [];
  const hasArrows = zoom > 0.16;
  const length = hasArrows ? Math.min(7, 3 + 4 * zoom) + width : 0;
  context.beginPath();
  for (const place of places) {
    const line = scene.lines[place];
    const end = line.box >= 0 ? line.y1 - length : line.y1;
    if (line.box >= 0 && hasArrows) arrows.push(line);
    context.moveTo(line.x0, line.y0);
    if (line.bends && zoom > 0.06) {
      const reach = Math.max((end - line.y0) * 0.5, 8);
      context.bezierCurveTo(line.x0, line.y0 + reach, line.x1, end - reach, line.x1, end);
    } else context.lineTo(line.x1, end);
  }
  context.stroke();
  context.beginPath();
  for (const { x1, y1 } of arrows) {
    context.moveTo(x1, y1);
    context.lineTo(x1 - length * 0.55, y1 - length - 0.5);
    context.lineTo(x1 + length * 0.55, y1 - length - 0.5);
  }
  context.fill();
}

function drawLabels(context, state, places) {
  context.fillStyle = state.colors.soft;
  for (const { text, x, y, w } of labelsOf(context, state.scene, places)) {
    write(context, MONO, LABEL.size, text, x, y, w, "left");
  }
}

// The shape of a tensor beside the line that enters a box, where the line is straight and no other line is: text, left
// end and base line, and width.
function labelsOf(context, scene, places) {
  const labels = [];
  for (const place of places) {
    const line = scene.lines[place];
    if (line.box < 0 || line.bends || line.y1 - line.y0 < 26) continue;
    const shape = shapeOf(line.net);
    if (!shape) continue;
    const text = fitted(context, MONO, LABEL.size, shape, LABEL.width, false);
    context.font = `${LABEL.size}px ${MONO.family}`;
    const label = { text, x: line.x1 + LABEL.gap, y: (line.y0 + line.y1) / 2 + 1, w: context.measureText(text).width };
    if (!places.some((other) => other !== place && isCrossed(label, scene.lines[other]))) labels.push(label);
  }
  return labels;
}

// True if the rectangle around a line touches a label.
function isCrossed({ x, y, w }, line) {
  return (
    Math.min(line.x0, line.x1) < x + w + 3 &&
    Math.max(line.x0, line.x1) > x - 3 &&
    line.y0 < y + 3 &&
    line.y1 > y - LABEL.size - 3
  );
}

// The shape of the tensors that a vertex produces; empty if they differ.
function shapeOf(v) {
  const end = report.portOf(v);
  const shape = end ? end.port.shape : report.cell("shape", v);
  const others = report.model.more_results?.[v] || [];
  if (others.some((result) => String(result.shape) !== String(shape))) return "";
  return shape?.length ? shape.join("\u00d7") : "";
}

// --- Selection -----------------------------------------------------------------------------------------------------

function drawMarks(context, zoom, state, places) {
  const { colors, scene } = state;
  const width = Math.max(2.5, 2.5 / zoom);
  const ring = (place, color) => {
    const box = scene.boxes[place];
    const radius = box.kind === PORT ? box.h / 2 + 3 : 9;
    context.strokeStyle = color;
    context.lineWidth = width;
    rounded(context, box.x - width, box.y - width, box.w + 2 * width, box.h + 2 * width, radius);
    context.stroke();
  };
  const selected = state.selected >= 0 ? scene.boxOf[state.selected] : -1;
  for (const place of places) {
    const box = scene.boxes[place];
    if (state.found && box.kind !== FRAME && !isDim(state, box) && zoom >= ROUND_ZOOM) ring(place, colors.warn);
    if (box.kind !== NODE && box.block >= 0 && box.block === state.selectedBlock) ring(place, colors.mark);
    if (place === selected) ring(place, colors.mark);
  }
}

// --- Map -----------------------------------------------------------------------------------------------------------

// Draw the whole scene small, into a canvas of the given size.
function drawMap(context, size, state) {
  const { scene, colors } = state;
  context.setTransform(size.ratio, 0, 0, size.ratio, 0, 0);
  context.clearRect(0, 0, size.width, size.height);
  const sx = size.width / Math.max(1, scene.width);
  const sy = size.height / Math.max(1, scene.height);
  let before = -1;
  for (const box of scene.boxes) {
    const pixel = Math.floor(box.y * sy * 2) * 4099 + Math.floor(box.x * sx);
    if (box.kind === FRAME || pixel === before) continue;
    before = pixel;
    context.fillStyle = (!isDim(state, box) && colorOf(state, box)) || colors.line;
    context.fillRect(box.x * sx, box.y * sy, Math.max(1.5, box.w * sx), Math.max(1, box.h * sy * 0.8));
  }
}

// --- Text ----------------------------------------------------------------------------------------------------------

const MEASURED = 100; // size at which texts are measured; widths are proportional to the size
const widths = new Map(); // weight, family and text -> width of the text
const texts = new Map(); // weight, family, width and text -> shortened text

function remember(map, key, compute) {
  let value = map.get(key);
  if (value === undefined) {
    if (map.size > 20000) map.clear();
    value = compute();
    map.set(key, value);
  }
  return value;
}

// Shorten a text in the middle, or at its end, until it fits.
function fitted(context, font, size, text, width, isList) {
  const name = `${font.weight + font.family}|${text}`;
  const limit = (width / size) * MEASURED;
  const measure = (part) => {
    context.font = `${font.weight + MEASURED}px ${font.family}`;
    return context.measureText(part).width;
  };
  if (remember(widths, name, () => measure(text)) <= limit) return text;
  return remember(texts, `${Math.round(limit)}|${name}`, () => {
    let low = 1;
    let high = text.length;
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if (measure(cut(text, middle, isList)) <= limit) low = middle;
      else high = middle - 1;
    }
    return cut(text, low, isList);
  });
}

function cut(text, length, isList) {
  if (isList) return `${text.slice(0, length).replace(/[,\s]+$/, "")}\u2026`;
  const half = Math.ceil(length / 2);
  return `${text.slice(0, half)}\u2026${text.slice(text.length - (length - half))}`;
}

// Write a text and return its width.
function write(context, font, size, text, x, y, width, align, isList = false) {
  const shown = fitted(context, font, size, String(text), width, isList);
  context.font = `${font.weight + size}px ${font.family}`;
  context.textAlign = align;
  context.fillText(shown, x, y);
  return align === "right" ? context.measureText(shown).width : 0;
}

const inks = new Map();

// The ground or the ink, whichever is more different from a color.
function onColor(color, colors) {
  const key = color + colors.ground;
  if (!inks.has(key)) {
    const light = luminance(color);
    const [ground, ink] = [luminance(colors.ground), luminance(colors.ink)];
    const contrast = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    inks.set(
      key,
      contrast(light, ground) >= LEAST_CONTRAST || contrast(light, ground) > contrast(light, ink)
        ? colors.ground
        : colors.ink,
    );
  }
  return inks.get(key);
}

function luminance(color) {
  const rgb = color.startsWith("#")
    ? [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16))
    : color.match(/\d+/g).slice(0, 3).map(Number);
  const [r, g, b] = rgb.map((value) =>
    value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4,
  );
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
