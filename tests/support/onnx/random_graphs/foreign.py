"""Read an ONNX model of another generator as a graph, so that it is compared and reduced like the own ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from tests.support.onnx.random_graphs.comparison import Case, with_expected
from tests.support.onnx.random_graphs.drawing import BINDINGS, Drawing, Input, Step, Value, reads
from tests.support.onnx.random_graphs.runtime import NodeRunner


def read_case(model: onnx.ModelProto, feeds: Mapping[str, Any], seed: int) -> Case | None:
    """A case of a model with static shapes; None if ONNX Runtime refuses it."""
    d = Drawing(seed)
    d.opset = next(entry.version for entry in model.opset_import if not entry.domain)
    d.constants = {t.name: Value(t.name, [numpy_helper.to_array(t)] * BINDINGS, True) for t in model.graph.initializer}
    known = {name: Value(name, [np.asarray(array)] * BINDINGS) for name, array in feeds.items()}
    d.inputs = [Input(value, _scaled(value)) for value in known.values()]
    for node in model.graph.node:
        names = list(dict.fromkeys(reads(node)))
        constants = {name: d.constants[name].arrays[0] for name in names if name in d.constants}
        operands = [known[name] for name in names if name not in constants]
        runner = NodeRunner.of(node, [value.operand for value in operands], constants, d.opset)
        results = runner and runner.run({value.name: value.arrays[0] for value in operands})
        if runner is None or results is None:
            return None
        known.update((name, Value(name, [array] * BINDINGS)) for name, array in zip(runner.names, results, strict=True))
        d.steps.append(Step(node, runner))
    d.values = list(known.values())
    return with_expected(d, d.steps, model, [{name: np.asarray(array) for name, array in feeds.items()}])


def _scaled(value: Value) -> Any:
    """A sampler around the feeds of a foreign graph."""
    array = value.arrays[0]
    if array.dtype.kind != "f":
        return lambda rng, shape: array
    return lambda rng, shape: np.asarray(array * rng.uniform(0.5, 1.2, shape), array.dtype)
