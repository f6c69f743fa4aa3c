// Geometry of the graph view: boxes and lines for a layout and a set of expanded blocks, in CSS pixels at zoom 1.
//
// graph_layout.py describes the layout. An expanded block is larger than a collapsed one: the columns and rows that it
// covers are stretched, so that nothing is laid out again. All steps are linear, apart from sorting x coordinates.

const PAD = 14; // between the frame of an expanded block and its boxes, at the left and the right
const TITLE = 24; // height of the title of an expanded block
const HEAD = 12; // between the title of an expanded block and its boxes
const FOOT = 20; // between its boxes and its bottom
const SLOT = 16; // distance between the lines that enter a box, while there is space
const BUCKET = 512; // height of the horizontal bands by which boxes and lines are found

// Kinds of boxes.
const NODE = 0;
const PORT = 1;
const BLOCK = 2;
const FRAME = 3;

report.graphGeometry = { build, boxAt, visible, NODE, PORT, BLOCK, FRAME, TITLE };

// Return the scene: {width, height, boxes, lines, boxOf, ...}. `boxOf[v]` is the box that shows vertex v: its own, or
// the box of its collapsed block. A line is one piece of a net: {x0, y0, x1, y1, net, parent, box, bends}. `net` is the
// vertex that produces the tensor, `parent` the index of the piece before it, `box` the index of the box at its arrow
// or -1.
function build(layout, nodes, expanded) {
  const scene = {
    boxes: [],
    lines: [],
    direct: [],
    boxOf: [],
    frameOf: new Map(),
    arrivals: new Map(),
    leaving: new Map(),
  };
  const inner = innerPlans(layout);
  const top = topLevel(layout, nodes, expanded, inner);
  scene.width = top.width;
  scene.height = top.height;
  const through = new Map(); // entry or exit of a block -> line that reaches it

  placeItems(scene, layout, nodes, expanded, inner, top);
  routeTop(scene, layout, top, inner, through);
  layout.blocks.forEach((block, place) => {
    if (expanded.has(place)) routeBlock(scene, block, place, inner[block.plan], through);
  });
  for (const line of scene.lines) if (typeof line.parent === "string") line.parent = through.get(line.parent);
  index(scene);
  return scene;
}

// --- Inside of blocks ----------------------------------------------------------------------------------------------

// Rows, size and anchor of the plans inside blocks. The anchor is the x coordinate of the main line through the block.
function innerPlans(layout) {
  const shapes = [];
  for (const block of layout.blocks) {
    if (shapes[block.plan]) continue;
    const plan = layout.plans[block.plan];
    const entries = block.entries.length;
    const exits = plan.x.length - block.exits.length;
    const heights = plan.layer.map((_, v) => (v < entries ? TITLE : v >= exits ? 0 : layout.box[1]));
    const rows = innerRows(plan, heights, entries, plan.x.length - exits);
    const anchor = anchorOf(plan, entries, exits);
    shapes[block.plan] = { plan, entries, exits, rows, anchor, left: anchor + PAD, right: plan.width - anchor + PAD };
  }
  return shapes;
}

// Lines enter a block under its title, which is the row of the entries, and leave it below the last boxes.
function innerRows(plan, heights, entries, exits) {
  const gaps = [...plan.gaps];
  const last = gaps.length - 1;
  if (exits) gaps[last - 1] = Math.max(FOOT, gaps[last - 1] - FOOT);
  const rows = rowsOf({ ...plan, gaps }, heights, entries ? 0 : TITLE + HEAD);
  if (!exits) rows.height += FOOT;
  return rows;
}

function anchorOf(plan, entries, exits) {
  const inside = plan.x.slice(0, entries);
  const outside = plan.x.slice(exits);
  if (inside.length === 1) return inside[0];
  if (outside.length === 1) return outside[0];
  return Math.round(plan.width / 2);
}

// Tops and bottoms of the layers of a plan.
function rowsOf(plan, heights, start) {
  const tallest = plan.gaps.map(() => 0);
  plan.layer.forEach((layer, v) => {
    tallest[layer] = Math.max(tallest[layer], heights[v]);
  });
  const tops = [];
  const bottoms = [];
  let y = start;
  tallest.forEach((height, layer) => {
    tops.push(y);
    bottoms.push(y + height);
    y += height + (layer + 1 < tallest.length ? plan.gaps[layer] : 0);
  });
  return { tops, bottoms, height: y };
}

// --- Top level -----------------------------------------------------------------------------------------------------

function topLevel(layout, nodes, expanded, inner) {
  const plan = layout.top;
  const sizes = layout.items.map((item) => {
    if (item < 0 && expanded.has(-1 - item)) {
      const shape = inner[layout.blocks[-1 - item].plan];
      return { left: shape.left, right: shape.right, height: shape.rows.height };
    }
    const [width, height] = item < 0 ? layout.block : item < nodes ? layout.box : layout.port;
    return { left: width / 2, right: width / 2, height };
  });
  const stretched = stretch(layout, nodes, sizes);
  const rows = rowsOf(
    plan,
    sizes.map((size) => size.height),
    0,
  );
  return { plan, sizes, x: stretched.x, width: stretched.width, rows, height: rows.height };
}

// Return a monotonic map of x coordinates that gives each item its space: distances never shrink, so that boxes that
// are apart in a row stay apart.
function stretch(layout, nodes, sizes) {
  const plan = layout.top;
  const needs = new Map(); // coordinate -> [earlier coordinate, distance]
  const values = new Set([0, plan.width]);
  const need = (from, to, distance) => {
    values.add(from).add(to);
    if (distance <= to - from) return;
    if (!needs.has(to)) needs.set(to, []);
    needs.get(to).push([from, distance]);
  };
  layout.items.forEach((item, place) => {
    const half = (item < 0 ? layout.block : item < nodes ? layout.box : layout.port)[0] / 2;
    const x = plan.x[place];
    need(x - half, x, sizes[place].left);
    need(x, x + half, sizes[place].right);
  });
  for (const trunk of plan.trunks) for (const x of trunk) values.add(x);
  const sorted = [...values].sort((a, b) => a - b);
  const map = new Map();
  let before = sorted[0];
  let position = 0;
  for (const value of sorted) {
    position += value - before;
    for (const [from, distance] of needs.get(value) || []) position = Math.max(position, map.get(from) + distance);
    map.set(value, position);
    before = value;
  }
  return { x: (value) => map.get(value), width: position };
}

function placeItems(scene, layout, nodes, expanded, inner, top) {
  const hasTall = top.plan.gaps.map(() => false);
  layout.items.forEach((item, place) => {
    if (item < 0 && expanded.has(-1 - item)) hasTall[top.plan.layer[place]] = true;
  });
  top.items = layout.items.map((item, place) => {
    const layer = top.plan.layer[place];
    const size = top.sizes[place];
    const slack = top.rows.bottoms[layer] - top.rows.tops[layer] - size.height;
    const y = top.rows.tops[layer] + (hasTall[layer] ? 0 : slack / 2);
    const x = top.x(top.plan.x[place]) - size.left;
    const box = { x, y, w: size.left + size.right, h: size.height, row: layer };
    if (item >= 0) return addBox(scene, { ...box, kind: item < nodes ? NODE : PORT, v: item, block: -1 });
    const block = -1 - item;
    const kind = expanded.has(block) ? FRAME : BLOCK;
    const added = addBox(scene, { ...box, kind, v: -1, block });
    scene.frameOf.set(block, added);
    for (const v of layout.blocks[block].nodes) scene.boxOf[v] = added;
    if (kind === FRAME) placeNodes(scene, layout, block, inner[layout.blocks[block].plan], scene.boxes[added]);
    return added;
  });
}

function placeNodes(scene, layout, place, shape, frame) {
  const [width, height] = layout.box;
  layout.blocks[place].nodes.forEach((v, i) => {
    const at = shape.entries + i;
    const layer = shape.plan.layer[at];
    const box = {
      x: frame.x + PAD + shape.plan.x[at] - width / 2,
      y: frame.y + shape.rows.tops[layer],
      w: width,
      h: height,
    };
    addBox(scene, { ...box, kind: NODE, v, block: place, row: layer });
  });
}

function addBox(scene, box) {
  scene.boxes.push(box);
  if (box.v >= 0) scene.boxOf[box.v] = scene.boxes.length - 1;
  return scene.boxes.length - 1;
}

// --- Lines ---------------------------------------------------------------------------------------------------------

const entry = (block, v) => `entry ${block} ${v}`;
const exit = (block, v) => `exit ${block} ${v}`;

function routeTop(scene, layout, top, inner, through) {
  const level = {
    plan: top.plan,
    x: top.x,
    tops: top.rows.tops,
    bottoms: top.rows.bottoms,
    layerOf: (place) => top.plan.layer[place],
    end: (place) => scene.boxes[top.items[place]],
  };
  const place = new Map();
  layout.items.forEach((item, at) => {
    for (const v of item >= 0 ? [item] : layout.blocks[-1 - item].nodes) place.set(v, at);
  });
  const arriving = [];
  top.plan.nets.forEach(([net, ...users], at) => {
    const source = place.get(net);
    const box = level.end(source);
    const start = { x: box.x + top.sizes[source].left, y: box.y + box.h, parent: -1 };
    if (box.kind === FRAME) {
      const block = layout.blocks[box.block];
      const shape = inner[block.plan];
      start.x = box.x + PAD + shape.plan.x[shape.exits + block.exits.indexOf(net)];
      start.parent = exit(box.block, net);
    }
    routeNet(scene, level, { net, at, source, users, start }, (user, piece) => {
      const target = level.end(user);
      if (target.kind !== FRAME) {
        arriving.push({ ...piece, box: top.items[user], wanted: target.x + top.sizes[user].left });
        return;
      }
      const block = layout.blocks[target.block];
      const x = target.x + PAD + inner[block.plan].plan.x[block.entries.indexOf(net)];
      through.set(entry(target.block, net), finish(scene, piece, x, target.y, -1));
    });
  });
  spread(scene, arriving);
}

function routeBlock(scene, block, place, shape, through) {
  const frame = scene.boxes[scene.frameOf.get(place)];
  const plan = shape.plan;
  const vertices = [...block.entries, ...block.nodes, ...block.exits];
  const shift = (y) => frame.y + y;
  const level = {
    plan,
    x: (value) => frame.x + PAD + value,
    tops: shape.rows.tops.map(shift),
    bottoms: shape.rows.bottoms.map(shift),
    layerOf: (at) => plan.layer[at],
  };
  const arriving = [];
  plan.nets.forEach(([source, ...users], at) => {
    const net = vertices[source];
    const isEntry = source < shape.entries;
    const y = (isEntry ? level.tops : level.bottoms)[plan.layer[source]];
    const start = { x: level.x(plan.x[source]), y, parent: isEntry ? entry(place, net) : -1 };
    routeNet(scene, level, { net, at, source, users, start }, (user, piece) => {
      const x = level.x(plan.x[user]);
      if (user < shape.exits) {
        arriving.push({ ...piece, box: scene.boxOf[vertices[user]], wanted: x });
        return;
      }
      through.set(exit(place, net), finish(scene, piece, x, frame.y + frame.h, -1));
    });
  });
  spread(scene, arriving);
}

// Add the lines of a net: from its producer through its dummy points. `arrive` continues from the last point to a user.
function routeNet(scene, level, { net, at, source, users, start }, arrive) {
  const layer = level.layerOf(source);
  const trunk = level.plan.trunks[at];
  const deepest = users.reduce((depth, user) => Math.max(depth, level.layerOf(user)), 0);
  const bottom = level.bottoms[layer];
  let last = start;
  if (bottom - start.y > 0.5) {
    last = { x: start.x, y: bottom, parent: add(scene, net, start.parent, start.x, start.y, start.x, bottom, false) };
  }
  const points = [last];
  const count = trunk.length ? deepest - layer - 1 : 0;
  for (let step = 0; step < count; step += 1) {
    const x = level.x(trunk.length === 1 ? trunk[0] : trunk[step]);
    const row = layer + 1 + step;
    let parent = add(scene, net, last.parent, last.x, last.y, x, level.tops[row], true);
    if (level.bottoms[row] > level.tops[row])
      parent = add(scene, net, parent, x, level.tops[row], x, level.bottoms[row], false);
    last = { x, y: level.bottoms[row], parent };
    points.push(last);
  }
  for (const user of users) {
    const depth = level.layerOf(user) - layer - 1;
    const from = points[Math.min(depth, points.length - 1)];
    arrive(user, { net, from, top: level.tops[level.layerOf(user)], isDirect: depth > points.length - 1 });
  }
}

// Give the lines that enter a box separate positions at its top. A line that comes straight from above stays straight.
function spread(scene, arriving) {
  const groups = new Map();
  for (const arrival of arriving) {
    if (!groups.has(arrival.box)) groups.set(arrival.box, []);
    groups.get(arrival.box).push(arrival);
  }
  for (const [place, group] of groups) {
    const box = scene.boxes[place];
    group.sort((a, b) => a.from.x - b.from.x);
    const center = group[0].wanted;
    const step = group.length > 1 ? Math.min(SLOT, (box.w - 24) / (group.length - 1)) : 0;
    let middle = (group.length - 1) / 2;
    const straight = group.findIndex((arrival) => Math.abs(arrival.from.x - center) < 1);
    if (straight >= 0 && step === SLOT && Math.max(straight, group.length - 1 - straight) * step < box.w / 2 - 12)
      middle = straight;
    group.forEach((arrival, i) => {
      finish(scene, arrival, center + (i - middle) * step, box.y, place);
    });
  }
}

// Add the last lines of a net to one user: to the top of its row, and down to its box.
function finish(scene, { net, from, top, isDirect }, x, y, box) {
  const hasStep = y - top > 0.5;
  const bend = add(scene, net, from.parent, from.x, from.y, x, hasStep ? top : y, true, hasStep ? -1 : box, isDirect);
  return hasStep ? add(scene, net, bend, x, top, x, y, false, box) : bend;
}

function add(scene, net, parent, x0, y0, x1, y1, bends, box = -1, isDirect = false) {
  const line = scene.lines.length;
  scene.lines.push({ x0, y0, x1, y1, net, parent, box, bends: bends && Math.abs(x0 - x1) > 0.5, isDirect });
  if (isDirect) scene.direct.push(line);
  if (box >= 0) {
    if (!scene.arrivals.has(box)) scene.arrivals.set(box, []);
    scene.arrivals.get(box).push(line);
  }
  if (!scene.leaving.has(net)) scene.leaving.set(net, []);
  scene.leaving.get(net).push(line);
  return line;
}

// --- Search by position --------------------------------------------------------------------------------------------

function index(scene) {
  const count = Math.floor(scene.height / BUCKET) + 1;
  scene.buckets = Array.from({ length: count }, () => ({ boxes: [], lines: [] }));
  const put = (kind, place, y0, y1) => {
    const last = Math.min(count - 1, Math.floor(y1 / BUCKET));
    for (let at = Math.max(0, Math.floor(y0 / BUCKET)); at <= last; at += 1) scene.buckets[at][kind].push(place);
  };
  scene.boxes.forEach((box, place) => {
    put("boxes", place, box.y, box.y + box.h);
  });
  scene.lines.forEach((line, place) => {
    if (!line.isDirect) put("lines", place, line.y0, line.y1);
  });
}

// Call `eachBox` and `eachLine` for what may be visible between two y coordinates, each once.
function visible(scene, y0, y1, eachBox, eachLine) {
  const first = Math.max(0, Math.floor(y0 / BUCKET));
  const last = Math.min(scene.buckets.length - 1, Math.floor(y1 / BUCKET));
  for (let at = first; at <= last; at += 1) {
    const floor = at * BUCKET;
    // Items that begin above this band were in an earlier one.
    for (const place of scene.buckets[at].lines) {
      const line = scene.lines[place];
      if (at === first || line.y0 >= floor) eachLine(line, place);
    }
    for (const place of scene.buckets[at].boxes) {
      const box = scene.boxes[place];
      if (at === first || box.y >= floor) eachBox(box, place);
    }
  }
  for (const place of scene.direct) {
    const line = scene.lines[place];
    if (line.y0 <= y1 && line.y1 >= y0) eachLine(line, place);
  }
}

// Return the index of the innermost box at a point, or -1.
function boxAt(scene, x, y) {
  const bucket = scene.buckets[Math.floor(y / BUCKET)];
  let found = -1;
  for (const place of bucket ? bucket.boxes : []) {
    const box = scene.boxes[place];
    const isInside = x >= box.x && x <= box.x + box.w && y >= box.y && y <= box.y + box.h;
    if (isInside && (found < 0 || box.kind !== FRAME)) found = place;
  }
  return found;
}
