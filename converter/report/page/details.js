// Panel with everything that is known about the selected node.

const panel = document.getElementById("details");
const { element, text } = report;

report.onSelect((index, byUser) => {
  panel.hidden = index < 0;
  document.documentElement.classList.toggle("has-selection", index >= 0 && byUser);
  panel.replaceChildren();
  if (index < 0) return;
  panel.append(heading(index));
  const isPort = report.portOf(index) !== null;
  const sections = isPort ? [portType, connections] : [errors, rule, histogram, notes, type, cost, connections, origin];
  for (const build of sections) {
    const found = build(index);
    if (found)
      panel.append(element("section", { "data-part": found[0] }, element("h4", {}, found[0]), ...found.slice(1)));
  }
  panel.scrollTop = 0;
});

function heading(index) {
  const isInteger = report.isInteger(index);
  const kind = report.portOf(index) ? `graph ${report.opOf(index)}` : `node ${index}`;
  const precision = report.cell("dtype", index);
  const close = element("button", { type: "button", class: "close", "aria-label": "Close the details" }, "Close");
  close.addEventListener("click", () => report.select(-1));
  return element(
    "header",
    {},
    element("div", { class: "row" }, element("span", { class: "soft" }, kind), close),
    element("h3", {}, report.breakable(report.nameOf(index))),
    element(
      "p",
      { class: "tags" },
      report.portOf(index) ? null : element("span", { class: "tag op" }, report.opOf(index)),
      precision ? element("span", { class: `tag ${isInteger ? "integer" : "float"}` }, precision) : null,
    ),
  );
}

// A list of name and value; entries without a value are left out.
function facts(rows) {
  const shown = rows.filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== "-");
  if (!shown.length) return null;
  return element(
    "dl",
    { class: "facts" },
    shown.map(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]),
  );
}

function errors(index) {
  const bars = [
    ["alone at the outputs", report.cell("isolated", index)],
    ["weights only", report.cell("weights_only", index)],
    ["activations only", report.cell("activations_only", index)],
    ["accumulated", report.cell("accumulated", index)],
    ["in the model", report.cell("sqnr", index)],
  ].filter(([, value]) => value !== null);
  const isSame = report.equalWord(index) !== undefined;
  const flips = report.cell("flips", index);
  const different = report.cell("integers", index)
    ? `${report.cell("different", index)} of ${report.cell("integers", index)}`
    : null;
  const list = facts([
    ["difference from the source", isSame ? "none" : null],
    ["first differs at", report.cell("stage", index) !== null && !isSame ? report.cell("stage", index) : null],
    ["noise added", text.share(report.cell("noise_added", index))],
    ["clipped", text.share(report.cell("clipped", index))],
    ["cosine", report.cell("cosine", index)],
    ["cosine alone", report.cell("isolated_cosine", index)],
    ["classes that change", flips === null ? null : text.share(flips)],
    ["larger part from", report.cell("cause", index)],
    ["largest difference", isSame ? null : text.number(report.cell("max_difference", index))],
    ["share of the range", isSame ? null : text.number(report.cell("relative_difference", index))],
    ["integers that differ", different],
    ["largest step", report.cell("steps", index) || null],
    ["not finite", report.cell("not_finite", index) || null],
  ]);
  if (!bars.length && !list) return null;
  const lengths = bars.map(([name, value]) =>
    element(
      "div",
      { class: "meter" },
      element("span", {}, name),
      report.bar(report.sqnrPart(value)),
      element("b", {}, text.decibel(value)),
    ),
  );
  const unit = bars.length ? element("p", { class: "soft" }, "SQNR in dB; longer is better") : null;
  return ["Error", ...lengths, unit, list];
}

// A horizontal bar that is filled up to `part`, from 0 to 1.
report.bar = (part) => {
  const width = 100 * Math.max(0, Math.min(1, part || 0));
  return report.svg(
    "svg",
    { class: "bar", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" },
    report.svg("rect", { class: "track", width: 100, height: 8 }),
    report.svg("rect", { width, height: 8 }),
  );
};

// Options of `convert` that change the precision of a node: the measured ones, or those that keep the node in float.
function fixOf(index) {
  const measured = report.cell("fix", index);
  if (measured) return measured;
  const name = report.cell("keep_float", index);
  return name ? `${report.constants.keepFloat} '${name.replace(/'/g, "'\\''")}'` : null;
}

function rule(index) {
  const options = fixOf(index);
  if (!options) return null;
  const isMeasured = Boolean(report.cell("fix", index));
  const code = element("code", { class: "rule", tabindex: "0" }, options);
  const button = element("button", { type: "button", class: "copy" }, "Copy");
  const status = element("span", { class: "soft", role: "status" });
  button.addEventListener("click", () => copy(code, status));
  const lead = isMeasured ? "removes the larger part of the error" : "keeps the node in float";
  return [
    "Precision rule",
    element("p", { class: "soft" }, `This option of tpuconvert convert ${lead}:`),
    element("div", { class: "row rule" }, code, button),
    status,
  ];
}

// Select the text of an element, and copy it where the browser permits that.
function copy(code, status) {
  const selection = window.getSelection();
  selection.removeAllRanges();
  const range = document.createRange();
  range.selectNodeContents(code);
  selection.addRange(range);
  let isCopied = false;
  try {
    isCopied = document.execCommand("copy");
  } catch (_error) {
    isCopied = false;
  }
  status.textContent = isCopied ? "copied" : "selected: press Ctrl+C";
}

const WIDTH = 320;
const HEIGHT = 96;

// Histogram of the magnitudes of a tensor on the calibration samples, with the threshold; values beyond are clipped.
function histogram(index) {
  const columns = report.model.histograms;
  const place = columns ? columns.node.indexOf(index) : -1;
  if (place < 0) return null;
  const [high, threshold, clipped] = [columns.high[place], columns.threshold[place], columns.clipped[place]];
  const levels = [...columns.levels[place]].map((digit) => report.constants.levels.indexOf(digit));
  const list = facts([
    ["values", `${text.number(columns.minimum[place])} to ${text.number(columns.maximum[place])}`],
    ["threshold", `${text.number(threshold)} by ${columns.method[place]}`],
    ["clipped", text.share(clipped)],
  ]);
  if (!levels.length) return ["Calibration", list];
  const right = Math.max(high, threshold);
  const step = (WIDTH * high) / right / levels.length;
  const largest = Math.max(...levels, 1);
  const bars = levels.map((level, bin) => {
    const height = (HEIGHT * level) / largest;
    const isClipped = ((bin + 0.5) * high) / levels.length > threshold;
    return report.svg("rect", {
      class: isClipped ? "clipped" : "kept",
      x: bin * step,
      y: HEIGHT - height,
      width: Math.max(0.5, step - 0.5),
      height,
    });
  });
  const x = (WIDTH * threshold) / right;
  const title = `Histogram of the magnitudes up to ${text.number(right)}, threshold ${text.number(threshold)}`;
  const picture = report.svg(
    "svg",
    {
      class: "histogram",
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      role: "img",
      "aria-label": title,
      preserveAspectRatio: "none",
    },
    report.svg("title", {}, title),
    bars,
    report.svg("line", { class: "limit", x1: x, x2: x, y1: 0, y2: HEIGHT }),
  );
  const ends = element(
    "div",
    { class: "row soft ends" },
    element("span", {}, "0"),
    element("span", {}, "magnitude, logarithmic counts"),
    element("span", {}, text.number(right)),
  );
  return ["Calibration", picture, ends, list];
}

function notes(index) {
  const found = (report.model.notes || []).filter((note) => note.nodes.includes(index));
  if (!found.length) return null;
  return ["Notes", found.map((note) => element("p", { class: "note" }, note.reason))];
}

function type(index) {
  const range = report.cell("range", index);
  const more = report.model.more_results?.[index] || [];
  return [
    "Result",
    facts([
      ["type", text.type(report.cell("dtype", index), report.cell("shape", index))],
      ["scale", text.scale(report.cell("scale", index), report.cell("zero_point", index))],
      ["range", range ? `${text.number(range[0])} to ${text.number(range[1])}` : null],
    ]),
    more.map((result) =>
      facts([
        ["result", result.name],
        ["type", text.type(result.dtype, result.shape)],
        ["scale", text.scale(result.scale, result.zero_point)],
      ]),
    ),
  ];
}

function portType(index) {
  const { port } = report.portOf(index);
  return [
    "Type",
    facts([
      ["type", text.type(port.dtype, port.shape)],
      ["scale", text.scale(port.scale, port.zero_point)],
    ]),
  ];
}

function cost(index) {
  const seconds = report.cell("seconds", index);
  const group = report.cell("group", index);
  if (seconds === null) return null;
  const total = report.model.facts?.seconds_node_by_node;
  const list = facts([
    ["MACs", text.count(report.cell("macs", index))],
    ["memory traffic", text.bytes(report.cell("bytes", index))],
    ["least time", text.time(seconds) + (total ? `, ${text.share(seconds / total)} of the sum` : "")],
    ["compute cycles", text.count(report.cell("compute_cycles", index))],
    ["transfer cycles", text.count(report.cell("transfer_cycles", index))],
    ["group", group === null ? "none" : String(group)],
    ["live tensors", text.bytes(report.cell("live_bytes", index))],
  ]);
  return ["Cost alone", list];
}

function connections(index) {
  const links = (indices) =>
    element(
      "ul",
      { class: "links" },
      [...new Set(indices)].map((other) =>
        element("li", {}, report.nodeLink(other), element("span", { class: "soft" }, ` ${report.opOf(other)}`)),
      ),
    );
  const before = report.producers(index);
  const after = report.users(index);
  const operands = report.cell("constants", index);
  return [
    "Connections",
    before.length ? [element("h5", {}, "operands"), links(before)] : null,
    operands ? [element("h5", {}, "constants"), element("p", { class: "mono" }, operands.join(", "))] : null,
    after.length ? [element("h5", {}, "users"), links(after)] : null,
  ];
}

function origin(index) {
  const attributes = report.cell("parameters", index);
  const sources = report.cell("sources", index) || [];
  const rules = report.cell("rules", index);
  return [
    "Operator and source",
    attributes ? element("p", { class: "mono" }, attributes) : null,
    sources.length
      ? [element("h5", {}, "source"), sources.map((source) => element("p", { class: "mono" }, source))]
      : null,
    rules?.length ? [element("h5", {}, "optimizer rules"), element("p", { class: "mono" }, rules.join(", "))] : null,
  ];
}
