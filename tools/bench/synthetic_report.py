"""Descriptions of synthetic quantized networks of any size, for tests and measurements of the report."""

from __future__ import annotations

import math
import random
from typing import Any

Description = dict[str, Any]

_STEPS = (
    ("conv:int32", "conv_v2", "INT32", "Conv", "kernel=(3, 3), strides=(1, 1), pads=(1, 1, 1, 1), groups=1"),
    ("conv/relu", "requant_int32", "UINT8", "Relu", "multiplier=1092395904, shift=-9, rounding=HALF_AWAY"),
    ("add:int32", "add", "INT32", "Add", ""),
    ("add/relu", "requant_int32", "INT8", "Relu", "multiplier=1374389534, shift=-7, rounding=HALF_AWAY"),
)
"""Nodes of one residual block: end of the name, operator, element type, source operator, attributes."""

_GROUP = 12
"""Number of nodes of a group in on-chip memory."""


def describe_network(nodes: int, seed: int = 7, *, branches: int = 1) -> Description:
    """Return the description of a quantized residual network with its cost, compared with a source.

    Args:
        nodes: number of nodes.
        seed: seed of the numbers.
        branches: number of parallel chains instead of the residual network, with names without scopes; 1 for none.

    """
    rng = random.Random(seed)
    layers = _layers(nodes, rng)
    if branches > 1:
        _rewire(layers, branches)
    cost = _cost(layers, rng)
    verification = _verification(layers, rng)
    notes = [
        {"kind": "float", "node": layer["name"], "message": f"{layer['op']}: 8-bit probabilities would lose accuracy"}
        for layer in layers[::50]
    ]
    counts = {op: sum(layer["op"] == op for layer in layers) for op in ("add", "conv_v2", "requant_int32")}
    return {
        "tool_version": "0.1.0",
        "chip": "BM1686",
        "quantize": "int8",
        "preprocessing": {},
        "plugins": [],
        "name": "network",
        "file": f"synthetic_{nodes}.onnx",
        "metadata": {},
        "notes": notes,
        "inputs": [{"name": "input", "dtype": "float32", "shape": [1, 3, 224, 224], "quantization": None}],
        "outputs": [{"name": "output", "dtype": "float32", "shape": [1, 256, 7, 7], "quantization": None}],
        "input_values": ["input:uint8"],
        "output_values": [layers[-1]["name"]],
        "nodes": nodes,
        "operators": counts,
        "arithmetic": {"INT32": counts["conv_v2"] + counts["add"], "INT8": counts["requant_int32"]},
        "conversions": 2,
        "transposes": 0,
        "constant_bytes": 25 << 20,
        "parameters": 25_557_032,
        "layers": layers,
        "constants": {f"{layer['name']}_w": "INT8[256, 256, 3, 3]" for layer in layers[::4]},
        "verification": verification,
        "cost": cost,
        "memory": _memory(nodes, rng),
        "histograms": {entry["name"]: _histogram(entry["clipped"], rng) for entry in verification["layers"]},
        "convergence": None,
    }


def _layers(nodes: int, rng: random.Random) -> list[Description]:
    layers: list[Description] = []
    before = "input:uint8"
    for index in range(nodes):
        end, op, dtype, source, parameters = _STEPS[index % 4]
        block = f"backbone/stage{index * 4 // nodes}/block{index // 4}"
        operands = [before, f"{block}/{end}_w"] if op == "conv_v2" else [before]
        if op == "add":
            operands.append(layers[index - 3]["name"] if index >= 3 else "input:uint8")
        side = 56 >> (index * 4 // nodes)
        quantization = {"scale": [rng.uniform(0.001, 0.1)], "zero_point": [0], "dtype": dtype, "axis": None}
        result: Description = {
            "name": f"{block}/{end}",
            "dtype": dtype,
            "shape": [1, 256, side, side],
            "quantization": quantization,
        }
        layers.append(
            {
                "index": index,
                "name": result["name"],
                "op": op,
                "parameters": parameters,
                "inputs": operands,
                "outputs": [result],
                "sources": [f"network.onnx: {source} '/{block}/{source.lower()}'"],
                "rules": ["fuse_conv_activation", "merge_requantize"] if op == "conv_v2" else [],
                "keep_float": f"{block}/{end.partition(':')[0].partition('/')[0]}",
            }
        )
        before = f"{block}/{end}"
    return layers


def _rewire(layers: list[Description], branches: int) -> None:
    """Turn the network into parallel chains."""
    for index, layer in enumerate(layers):
        before = layers[index - branches]["name"] if index >= branches else "input:uint8"
        layer["inputs"] = [before, *(name for name in layer["inputs"] if name.endswith("_w"))]
        layer["sources"] = [f"network.onnx: {layer['op']} '{layer['op']}_{index}'"]


def _cost(layers: list[Description], rng: random.Random) -> Description:
    costs: list[Description] = []
    for index, layer in enumerate(layers):
        macs = rng.randrange(10**6, 2 * 10**8) if layer["op"] == "conv_v2" else 0
        moved = rng.randrange(10**4, 10**6)
        seconds = max(macs / 8e12, moved / 64e9)
        costs.append({"index": index, "macs": macs, "bytes": moved, "seconds": seconds, "group": index // _GROUP})
    macs, moved = sum(cost["macs"] for cost in costs), sum(cost["bytes"] for cost in costs)
    seconds = sum(cost["seconds"] for cost in costs)
    groups = [_group(first, costs[first : first + _GROUP]) for first in range(0, len(layers), _GROUP)]
    return {
        "chip": "BM1686",
        "memory": {"lanes": 32, "lane_bytes": 131072, "row_bytes": 64},
        "peak": {
            "bytes_per_second": 64e9,
            "macs_per_second": {"INT8": 8e12, "FLOAT16": 4e12, "FLOAT32": 1e12},
        },
        "macs": macs,
        "repeated_macs": 0,
        "bytes_node_by_node": moved,
        "bytes": moved // 2,
        "saved": 0.5,
        "seconds_node_by_node": seconds,
        "seconds": seconds / 2,
        "not_known": 0,
        "groups": groups,
        "layers": costs,
    }


def _group(first: int, costs: list[Description]) -> Description:
    moved = sum(cost["bytes"] for cost in costs)
    return {
        "first": first,
        "nodes": len(costs),
        "tiles": {"n": 1, "c": 1, "h": 4},
        "keeps_constants": False,
        "lane_bytes": 90_000,
        "macs": sum(cost["macs"] for cost in costs),
        "repeated_macs": 0,
        "bytes_node_by_node": moved,
        "bytes": moved // 2,
        "saved": 0.5,
        "seconds": sum(cost["seconds"] for cost in costs) / 2,
        "operators": {"add": 3, "conv_v2": 3, "requant_int32": 6},
    }


def _memory(nodes: int, rng: random.Random) -> Description:
    live = [rng.randrange(10**5, 10**6) for _ in range(nodes)]
    return {"live_bytes": live, "peak_bytes": max(live), "arena_bytes": max(live)}


def _histogram(clipped: float, rng: random.Random) -> Description:
    """Return the histogram of magnitudes with a normal distribution."""
    deviation = rng.uniform(0.5, 4.0)
    bins = rng.randrange(34, 65)
    counts = [int(200_000 * math.exp(-0.5 * (8.0 * place / bins) ** 2)) for place in range(bins)]
    return {
        "minimum": 0.0,
        "maximum": 4.0 * deviation,
        "threshold": rng.uniform(2.5, 4.0) * deviation,
        "method": "mse",
        "clipped": clipped,
        "low": 0.0,
        "high": 4.0 * deviation,
        "counts": counts,
    }


def _verification(layers: list[Description], rng: random.Random) -> Description:
    compared = [_difference(layer["name"], layer["op"], rng) for layer in layers if layer["op"] == "requant_int32"]
    noisiest = sorted(compared, key=lambda entry: -float(entry["noise_added"]))[:12]
    low = [entry for entry in compared if entry["sqnr_db"] < 20.0]
    return {
        "file": "network",
        "samples": 4,
        "origin": "",
        "is_quantized": True,
        "first_difference": low[0] if low else None,
        "outputs": [{**compared[-1], "name": "output", "op": "output", "noise_added": 0.0}],
        "layers": compared,
        "most_noise_added_at": [entry["name"] for entry in noisiest],
        "unmatched": 0,
        "opinion": None,
        "oracle": {"name": "tpuconvert", "version": "0", "is_independent": False, "samples": 1, "problem": ""},
        "state": None,
        "exactness": None,
        "output_problems": [],
        "tasks": [],
    }


def _difference(name: str, op: str, rng: random.Random) -> Description:
    return {
        "name": name,
        "op": op,
        "stage": "quantize",
        "reads": [],
        "max_absolute": rng.uniform(0.01, 2.0),
        "relative": rng.uniform(0.001, 0.1),
        "cosine": 1.0 - rng.uniform(0.0, 0.01),
        "sqnr_db": rng.uniform(12.0, 45.0),
        "noise_added": rng.uniform(0.0, 0.02),
        "clipped": rng.uniform(0.0, 0.01),
        "integers": 0,
        "different": 0,
        "steps": 0,
        "not_finite": 0,
    }
