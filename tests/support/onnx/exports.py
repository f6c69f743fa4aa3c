"""Runs of exported ONNX models in ONNX Runtime, compared with our runtime."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import tpuconvert as tc
from tpuconvert.schema.file.file_model import FileModel
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.types import Array, Chip


def model_of(graph: Graph, chip: Chip = Chip.BM1686) -> tc.Model:
    """A graph as a model."""
    return tc.Model(FileModel(graph, chip, "0", "int8"))


def run(path: Path, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Run an ONNX file in ONNX Runtime on one thread. Return the outputs by name."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    results = session.run(names, {item.name: np.asarray(feeds[item.name]) for item in session.get_inputs()})
    return dict(zip(names, results, strict=True))


def export_and_run(model: tc.Model, feeds: Mapping[str, Any], path: Path) -> dict[str, tuple[Array, Array]]:
    """Export with every integer tensor. Return name -> (result of ONNX Runtime, result of our runtime)."""
    tc.export(model, path, to="onnx", with_checks=True)
    found = run(path, feeds)
    seen: dict[str, Array] = {}
    with tc.Session(model, threads=1) as session:
        outputs = session.run(feeds, observe=lambda value, array: seen.__setitem__(value.name, np.array(array)))
    return {name: (array, np.asarray(outputs.get(name, seen.get(name)))) for name, array in found.items()}


def differences(pairs: Mapping[str, tuple[Array, Array]], tolerance: float = 0.0) -> list[str]:
    """Names of tensors that differ; floats may differ by ``tolerance`` times the largest magnitude."""
    wrong = []
    for name, (found, expected) in pairs.items():
        same = found.dtype == expected.dtype and found.shape == expected.shape
        if same and expected.dtype.kind == "f" and tolerance:
            limit = tolerance * max(float(np.abs(expected).max(initial=0)), 1e-30)
            same = bool(np.abs(found.astype(np.float64) - expected).max(initial=0) <= limit)
        elif same:
            same = np.array_equal(found, expected, equal_nan=expected.dtype.kind == "f")
        if not same:
            wrong.append(name)
    return wrong
