"""A report with the graph view of a case, for its tests."""

from __future__ import annotations

from typing import Any

from tests.support.report.graph_view_cases import Case
from tpuconvert.report.graph_layout import describe_layout
from tpuconvert.report.page.assembly import assemble_page

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
        "name": "graph",
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
    """Return the page with the graph of a case and without the static sections."""
    body = (
        '<header class="top"><div id="tools"></div></header><div class="frame"><main>'
        '<article class="model" id="m0" data-model="0"><div class="slot" data-view="graph"></div></article></main>'
        '<aside id="details" hidden></aside></div>'
    )
    return assemble_page("graph", body, {"models": [model_of(case)]})
