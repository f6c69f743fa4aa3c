// Colors of the boxes of the graph view: by operator kind, precision, error, time, memory traffic or arithmetic.

const { constants } = report;

// Classes of nodes: name, variable of the style sheet, and text of the legend.
const KINDS = Object.entries(constants.kindLegend).map(([kind, text], i) => [kind, constants.series[i], text]);

// Precisions by their bits; floats have none.
const PRECISIONS = [
  [8, "s3", "INT8"],
  [16, "s1", "INT16"],
  [32, "s4", "INT32"],
  [0, "s2", "float"],
];

// Measures with a scale from good to bad. `total` adds the nodes of a block for its text; the block has the color of
// its worst node.
const MEASURES = {
  isolated: { title: "Error alone", unit: "decibel", low: true },
  sqnr: { title: "SQNR", unit: "decibel", low: true },
  seconds: { title: "Time", unit: "time", total: true },
  bytes: { title: "Memory traffic", unit: "bytes", total: true },
  macs: { title: "MACs", unit: "count", total: true },
};

const WORST_DECIBEL = 5;
const BEST_DECIBEL = 45;

report.graphColors = { modes, painter };

// Return the modes that the shown model has data for, as [value, title].
function modes() {
  const found = [
    ["kind", "Operator kind"],
    ["precision", "Precision"],
  ];
  for (const [name, { title }] of Object.entries(MEASURES)) if (report.column(name)) found.push([name, title]);
  return found;
}

// Return {isClass, colorOf(v), textOf(v), blockText(nodes), worstOf(nodes), legend}. A color or text is null where
// nothing is known. `worstOf` is that node of a block whose color the block has, if colors are no classes.
function painter(mode) {
  if (mode === "precision") return byClass(PRECISIONS, precisionOf);
  if (MEASURES[mode] && report.column(mode)) return byMeasure(report.column(mode), MEASURES[mode]);
  return byClass(KINDS, kindOf);
}

function kindOf(v) {
  return report.portOf(v) ? null : report.model.layout.kinds[report.opOf(v)];
}

function precisionOf(v) {
  const dtype = report.cell("dtype", v);
  return dtype ? constants.integerBits[dtype] || 0 : null;
}

function byClass(classes, classOf) {
  const colors = new Map(classes.map(([name, variable]) => [name, report.color(variable)]));
  const used = new Set();
  for (let v = 0; v < report.nodeCount(); v += 1) used.add(classOf(v));
  return {
    colorOf: (v) => colors.get(classOf(v)) || null,
    textOf: () => null,
    blockText: () => null,
    isClass: true,
    legend: classes.filter(([name]) => used.has(name)).map(([name, , text]) => [text, colors.get(name)]),
  };
}

function byMeasure(column, { unit, low, total }) {
  const values = column.filter((value) => typeof value === "number");
  const most = values.reduce((largest, value) => Math.max(largest, value), 0);
  const scale = low
    ? (value) => (BEST_DECIBEL - value) / (BEST_DECIBEL - WORST_DECIBEL)
    : (value) => (most ? Math.sqrt(value / most) : 0);
  const ramp = low ? ["good", "s2", "s5"] : ["line", "s2", "s5"];
  const stops = ramp.map((name) => channels(report.color(name)));
  const color = (value) => (typeof value === "number" ? mixed(stops, Math.max(0, Math.min(1, scale(value)))) : null);
  const text = (value) => report.text[unit](value) + (unit === "decibel" ? " dB" : "");
  const known = (nodes) => nodes.map((v) => column[v]).filter((value) => typeof value === "number");
  return {
    colorOf: (v) => color(column[v]),
    textOf: (v) => (typeof column[v] === "number" ? text(column[v]) : null),
    blockText(nodes) {
      const found = known(nodes);
      if (!found.length) return null;
      return total
        ? text(found.reduce((sum, value) => sum + value, 0))
        : `worst ${text(found.reduce((least, value) => Math.min(least, value)))}`;
    },
    worstOf(nodes) {
      const found = nodes.filter((v) => typeof column[v] === "number");
      return found.length ? found.reduce((a, b) => (scale(column[b]) > scale(column[a]) ? b : a)) : null;
    },
    isClass: false,
    legend: low
      ? [
          [`${BEST_DECIBEL} dB or more`, color(BEST_DECIBEL)],
          [`${(BEST_DECIBEL + WORST_DECIBEL) / 2} dB`, color((BEST_DECIBEL + WORST_DECIBEL) / 2)],
          [`${WORST_DECIBEL} dB or less`, color(WORST_DECIBEL)],
        ]
      : [0, 0.25, 1].map((part) => [text(unit === "time" ? most * part : Math.round(most * part)), color(most * part)]),
  };
}

// Red, green and blue of a color of the style sheet, which is #rrggbb or #rgb.
function channels(color) {
  const digits = color.slice(1);
  const wide = digits.length < 6 ? [...digits].map((digit) => digit + digit).join("") : digits;
  return [0, 2, 4].map((at) => parseInt(wide.slice(at, at + 2), 16) || 0);
}

function mixed(stops, part) {
  const at = Math.min(stops.length - 2, Math.floor(part * (stops.length - 1)));
  const share = part * (stops.length - 1) - at;
  const rgb = stops[at].map((value, i) => Math.round(value + (stops[at + 1][i] - value) * share));
  return `rgb(${rgb.join(",")})`;
}
