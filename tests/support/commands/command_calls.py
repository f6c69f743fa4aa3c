"""A successful call of every command, on files of one folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tpuconvert as tc
from tests.support.networks.decoders import FORMS, decoder
from tpuconvert.cli.group import COMMANDS, group
from tpuconvert.conversion.options.options import group_options

PLUGIN = """
from dataclasses import dataclass

import numpy as np
import tpuconvert as tc


@tc.register_op("calls_twice")
@dataclass(frozen=True)
class Twice(tc.Op):
    inputs = (tc.Operand("x"),)
    outputs = (tc.Operand("y"),)

    def infer(self, x):
        return (x,)

    def reference(self, x):
        return (x + x,)

    @staticmethod
    def examples():
        yield Twice(), ((1, 2),)
"""

CONDITION = """
import sqlite3  # not imported by the program


def always(path):
    return True
"""

MANIFEST = "models:\n  a: {source: net.onnx, samples: 1}\n  b: {source: net.onnx, chip: bm1684, samples: 1}\n"

CALLS: dict[str, list[str]] = {
    "convert": ["net.onnx", "-o", "new.tpum", "--verify"],
    "check": ["net.onnx"],
    "inspect": ["net.tpum"],
    "run": ["net.tpum", "x.npy"],
    "generate": ["decoder.tpum", "--tokens", "1,2", "--max-new-tokens", "2"],
    "bench": ["net.tpum", "--runs", "1"],
    "verify": ["net.onnx", "net.tpum"],
    "diff": ["net.tpum", "int8.tpum"],
    "attribute": ["net.onnx", "int8.tpum", "--data", "samples.npz"],
    "calibrate": ["net.onnx", "--calibration", "samples.npz", "--workers", "2", "-o", "new.json"],
    "quantize": ["net.onnx", "--ranges", "ranges.json", "-o", "new8.tpum"],
    "tune": ["net.onnx", "--calibration", "samples.npz", "--data", "check.npz", "--metric", "cosine", "-o", "t.tpum"],
    "evaluate": ["int8.tpum", "--data", "samples.npz", "--unlabeled", "--reference", "net.tpum", "--metric", "top1"],
    "export": ["int8.tpum", "folder"],
    "device plan": ["golden.tpum", "plan"],
    "device compare": ["golden.tpum", "dumps/expected.npz"],
    "device check": ["golden.tpum"],
    "doctor": ["net.onnx", "--data", "samples.npz"],
    "reduce": ["net.onnx", "--until", "condition:always", "-o", "small.onnx"],
    "reproduce": ["net.onnx", "net.tpum"],
    "ci": ["models.yaml", "--jobs", "2", "--cache", "cache"],
    "ops": ["conv"],
    "op test": ["plugin.py"],
    "passes": [],
    "completion": ["bash"],
    "demo": ["-o", "demo"],
}
"""Command -> arguments that make it succeed in the folder of :func:`write_files`."""

INSTALLS = {"device setup"}
"""Commands that install packages; tests/converter/device/test_setup.py runs it with a stand-in for the compiler."""


def leaf_commands() -> Iterator[str]:
    """Yield the names of all commands and of the commands of groups."""
    context = click.Context(group)
    for name in COMMANDS:
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from (f"{name} {inner}" for inner in command.commands)
        else:
            yield name


def call(command: str) -> list[str]:
    """Return the arguments of ``tpuconvert`` for a command."""
    return [*command.split(), *CALLS[command]]


def write_files(folder: Path) -> None:
    """Write the files that the calls read."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3])
    random = np.random.default_rng(0)
    weights = numpy_helper.from_array(random.normal(size=(4, 3)).astype(np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"], name="m"), helper.make_node("Relu", ["m"], ["y"], name="r")]
    graph = helper.make_graph(nodes, "g", [x], [y], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "net.onnx")
    samples = random.normal(size=(4, 1, 4)).astype(np.float32)
    np.savez(folder / "samples.npz", x=samples)
    np.savez(folder / "check.npz", x=samples[:2] * 0.5)
    np.save(folder / "x.npy", samples[0])
    (folder / "plugin.py").write_text(PLUGIN)
    (folder / "condition.py").write_text(CONDITION)
    (folder / "models.yaml").write_text(MANIFEST)
    tc.convert(folder / "net.onnx").save(folder / "net.tpum")
    how = {"quantize": "int8", "calibration": folder / "samples.npz"}
    tc.convert(folder / "net.onnx", **group_options(**how)).save(folder / "int8.tpum")
    golden = tc.convert(folder / "net.onnx", golden=1, **group_options(**how))
    golden.save(folder / "golden.tpum")
    tc.device_plan(golden, folder / "dumps")
    tc.convert(decoder(next(iter(FORMS)), seed=3)).save(folder / "decoder.tpum")
    tc.calibrate(folder / "net.onnx", calibration=folder / "samples.npz").save(folder / "ranges.json")
