"""A file beyond a limit is refused with the limit and the option that changes it, in every format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx as onnx_file
import pytest
from onnx import TensorProto, helper

import tpuconvert as tc
from tests.support.caffe.networks import layer, with_input, write_text, write_weights
from tpuconvert.frontends import caffe, onnx, tflite
from tpuconvert.schema.errors import ResourceLimitError
from tpuconvert.schema.system.limits import DEFAULT_LIMITS, Limits

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "digits"


def load_onnx(_folder: Path, limits: Limits) -> None:
    onnx.load(EXAMPLE / "digits.onnx", limits=limits)


def load_tflite(_folder: Path, limits: Limits) -> None:
    tflite.load(EXAMPLE / "digits.tflite", limits=limits)


def load_caffe(_folder: Path, limits: Limits) -> None:
    caffe.load(EXAMPLE / "digits.prototxt", EXAMPLE / "digits.caffemodel", limits=limits)


def load_nested_onnx(folder: Path, limits: Limits) -> None:
    """An If in a branch of an If."""
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])
    branch = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "innermost", [], [result])
    for name in ("inner", "net"):
        node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
        branch = helper.make_graph([node], name, [], [result])
    for port, kind, shape in (("x", TensorProto.FLOAT, [1]), ("c", TensorProto.BOOL, [])):
        branch.input.append(helper.make_tensor_value_info(port, kind, shape))
    onnx_file.save(helper.make_model(branch), folder / "net.onnx")
    onnx.load(folder / "net.onnx", limits=limits)


def load_trained_caffe(folder: Path, limits: Limits) -> None:
    """A weight file with more layers than the network, as after training."""
    weights = {name: [np.ones(1, np.float32)] for name in ("layer", "loss", "accuracy")}
    caffe.load(write_text(folder, with_input((1, 2), layer("ReLU"))), write_weights(folder, weights), limits=limits)


@pytest.mark.parametrize(
    ("load", "limit", "number"),
    [
        (load_onnx, "file-bytes", 100),
        (load_onnx, "nodes", 1),
        (load_onnx, "tensors", 1),
        (load_onnx, "constant-bytes", 1),
        (load_tflite, "file-bytes", 100),
        (load_tflite, "nodes", 1),
        (load_tflite, "tensors", 1),
        (load_tflite, "constant-bytes", 1),
        (load_nested_onnx, "depth", 1),
        (load_tflite, "depth", 2),
        (load_caffe, "text-bytes", 100),
        (load_caffe, "file-bytes", 100),
        (load_caffe, "nodes", 1),
        (load_trained_caffe, "nodes", 2),
    ],
    ids=lambda item: item.__name__ if callable(item) else str(item),
)
def test_error_names_the_limit(load: Callable[[Path, Limits], None], limit: str, number: int, tmp_path: Path) -> None:
    limits = replace(DEFAULT_LIMITS, **{f"max_{limit.replace('-', '_')}": number})
    with pytest.raises(ResourceLimitError, match=f"more than {number}\\b|more than {number} ") as caught:
        load(tmp_path, limits)
    assert f"--limit {limit}=NUMBER" in caught.value.hint
    assert caught.value.file


@pytest.mark.parametrize("name", ["digits.onnx", "digits.tflite", "digits.prototxt"])
def test_limits_of_a_call_hold_for_every_reader(name: str, tmp_path: Path) -> None:
    """``reduce`` reads the source with the readers of the frontends, not with a frontend."""
    weights = EXAMPLE / "digits.caffemodel" if name.endswith("prototxt") else None
    with tc.limited(nodes=1), pytest.raises(ResourceLimitError, match="more than 1"):
        tc.reduce(EXAMPLE / name, weights, until="error", output=tmp_path / f"small{Path(name).suffix}")
