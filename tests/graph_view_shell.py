"""A page with the graph view alone, for its tests: a small ``report`` object, colours, and one model."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from graph_view_cases import Case

from tpuconvert.report.graph_layout import describe_layout

OPS = {
    "conv": "conv",
    "add": "add",
    "relu": "active",
    "gelu": "gelu",
    "pool": "pool",
    "concat": "concat",
    "norm": "layer_norm",
    "softmax": "softmax",
    "reshape": "reshape",
    "permute": "permute",
    "slice": "extract",
}
"""Part of a name in a case -> operator of the node; others are `matrix_mul`."""

_COLOURS = {
    "light": "--ink:#18202b;--soft:#5a6676;--line:#dde3ea;--ground:#ffffff;--band:#f3f5f9;--mark:#1f63c6;"
    "--warn:#b5480b;--good:#17794a;--shade:#18202820;--tint:#e8f0fd;--s1:#2f6fd6;--s2:#d9730d;--s3:#24915a;--s4:#8a4fd0;--s5:#c23a68;"
    "--s6:#5f7488",
    "dark": "--ink:#e4e9f1;--soft:#97a4b5;--line:#2b3440;--ground:#171d26;--band:#0e1218;--mark:#73abff;--warn:#f0a065;"
    "--good:#5fc793;--shade:#00000060;--tint:#1d2e4a;--s1:#6fa3f2;--s2:#f0a04b;--s3:#5cc48f;--s4:#b48cf0;--s5:#f0809f;"
    "--s6:#93a7ba",
}

_SHELL = """
const listeners = { select: [], model: [] };
report.data = JSON.parse(document.getElementById("report-data").textContent);
report.model = report.data.models[0];
report.element = (tag, attributes, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.flat(Infinity));
  return made;
};
report.nodeCount = () => report.model.nodes.name.length;
report.column = (name) => report.model.nodes[name] || null;
report.cell = (name, v) => (report.model.nodes[name] || [])[v] ?? null;
report.portOf = (v) => {
  const place = v - report.nodeCount();
  if (place < 0) return null;
  const { inputs, outputs } = report.model;
  if (place < inputs.length) return { port: inputs[place], kind: "input" };
  return { port: outputs[place - inputs.length], kind: "output" };
};
report.nameOf = (v) => (report.portOf(v) ? report.portOf(v).port.name : report.model.nodes.name[v]);
report.opOf = (v) => (report.portOf(v) ? report.portOf(v).kind : report.model.nodes.op[v]);
const ends = (v, from, to) => report.model.edges.filter((_, at, all) => at % 2 === to && all[at + from - to] === v);
report.producers = (v) => ends(v, 1, 0);
report.users = (v) => ends(v, 0, 1);
report.onSelect = (listener) => listeners.select.push(listener);
report.onModel = (listener) => listeners.model.push(listener);
report.colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
report.shorten = (name) => name;
const plain = (value) => String(value);
const shapeText = (shape) => (shape ? "[" + shape.join(", ") + "]" : "");
report.text = { shape: shapeText, number: plain, decibel: plain, count: plain, bytes: plain, time: plain };
report.text.type = (dtype, shape) => dtype + report.text.shape(shape);
report.selected = -1;
report.select = (v, byUser = true) => {
  report.selected = v;
  for (const listener of listeners.select) listener(v, byUser);
  report.view.select(v);
};
report.addView = (name, view) => {
  report.view = view;
  view.mount(document.getElementById("graph"));
};
"""


def model_of(case: Case) -> dict[str, Any]:
    """Return the model of the report for a case."""
    ops = [next((op for part, op in OPS.items() if part in name), "matrix_mul") for name in case.names]
    layers = [
        {"name": name, "op": op, "sources": [f"m.onnx: Op '{name}'"]} for name, op in zip(case.names, ops, strict=True)
    ]
    count = len(case.names)
    port = {"dtype": "float32", "shape": ["N", 3, 32, 32]}
    outputs = {v for v in case.edges[1::2] if v >= count}
    ports = sorted(range(count, case.vertices), key=lambda v: v in outputs)  # inputs come first
    place = {v: count + i for i, v in enumerate(ports)}
    edges = [place.get(v, v) for v in case.edges]
    return {
        "nodes": {
            "name": case.names,
            "op": ops,
            "dtype": ["FLOAT32" if op in ("softmax", "layer_norm") else "INT8" for op in ops],
            "shape": [["N", 16, 8 + v % 3, 8] for v in range(count)],
            "macs": [1000 * (1 + v % 17) if op in ("conv", "matrix_mul") else 0 for v, op in enumerate(ops)],
            "sqnr": [None if op == "reshape" else 10 + v * 7 % 40 for v, op in enumerate(ops)],
        },
        "edges": edges,
        "inputs": [{"name": f"input{i}", **port} for i in range(len(ports) - len(outputs))],
        "outputs": [{"name": f"output{i}", **port} for i in range(len(outputs))],
        "layout": describe_layout(layers, edges, case.vertices),
    }


def page_of(case: Case) -> str:
    """Return the page with the graph of a case."""
    folder = resources.files("tpuconvert.report").joinpath("page")
    files = sorted((item for item in folder.iterdir() if item.name.startswith("graph_")), key=lambda item: item.name)
    scripts = [item.read_text(encoding="utf-8") for item in files if item.name.endswith(".js")]
    styles = [item.read_text(encoding="utf-8") for item in files if item.name.endswith(".css")]
    script = "".join(f"(function () {{\n{text}}})();\n" for text in (_SHELL, *scripts))
    data = json.dumps({"models": [model_of(case)]}).replace("<", "\\u003c")
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>:root {{{_COLOURS['light']}}} @media (prefers-color-scheme: dark) {{ :root {{{_COLOURS['dark']}}} }}"
        "body { margin: 0; background: var(--ground); color: var(--ink); font: 14px sans-serif }"
        f"[hidden] {{ display: none !important }} #graph {{ height: 600px }}{''.join(styles)}</style></head>"
        f'<body><div id="graph"></div><script type="application/json" id="report-data">{data}</script>'
        f'<script>"use strict"; const report = {{}};\n{script}</script></body></html>'
    )
