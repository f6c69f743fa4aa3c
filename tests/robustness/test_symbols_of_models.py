"""Names of symbolic extents in a ``.tpum`` file that belong to no input: the file is refused, or runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tpuconvert as tc
from tpuconvert.schema.definition.extents import evaluate_extent
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.file import file_writer
from tpuconvert.schema.file import tpum_tables as tpum

NAMES = ["", "zzz", "1", "-1", "N", "N+1", "N/0", "ceil(N)", "?", "?nms", "a b", "\0", "(" * 300, "-" * 20000 + "1",
         "1e999", "N*1e999", "é", "9" * 400]  # fmt: skip


def dynamic() -> tc.Model:
    """Shapes ``N``, ``N+1`` and a data-dependent one."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    z = helper.make_tensor_value_info("z", TensorProto.INT64, None)
    one = numpy_helper.from_array(np.ones((1, 3), np.float32), "one")
    nodes = [helper.make_node("Concat", ["x", "one"], ["c"], axis=0), helper.make_node("Relu", ["c"], ["y"]),
             helper.make_node("NonZero", ["c"], ["z"])]  # fmt: skip
    graph = helper.make_graph(nodes, "g", [x], [y, z], [one])
    return tc.convert(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))


def written(model: tc.Model, path: Path, edit: Callable[[tpum.Model], tpum.Model], patch: pytest.MonkeyPatch) -> None:
    """Write a file whose tables are edited, with a valid digest."""
    encode = file_writer.encode
    with patch.context() as changed:
        changed.setattr(file_writer, "encode", lambda content: (lambda t, b: (edit(t), b))(*encode(content)))
        changed.setattr(file_writer, "decode", lambda *_: None)
        model.save(path)


def runs(path: Path, backend: str) -> bool:
    """Return False if the model is refused. An exception of another type fails the test."""
    try:
        with tc.Session(path, backend=backend) as session:
            session.run({"x": np.ones((2, 3), np.float32)})
    except tc.TpuConvertError:
        return False
    return True


def test_symbols(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = dynamic()
    symbols = file_writer.encode(model.content)[0].graph.symbols
    assert len(symbols) >= 3
    refused = 0
    for position in range(len(symbols)):
        for name in NAMES:
            changed = (*symbols[:position], name, *symbols[position + 1 :])
            path = tmp_path / "net.tpum"
            try:
                written(model, path, lambda t, c=changed: t._replace(graph=t.graph._replace(symbols=c)), monkeypatch)
            except (ValueError, tc.TpuConvertError):
                continue
            for backend in ("native", "reference"):
                refused += not runs(path, backend)
    assert refused > 20


@pytest.mark.parametrize("formula", NAMES)
def test_formulas_of_hostile_files(formula: str) -> None:
    try:
        evaluate_extent(formula, {"N": 1})
    except ShapeError:
        return
    assert formula in ("1", "-1", "N", "N+1", "ceil(N)", "9" * 400)
