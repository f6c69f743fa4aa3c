"""Outputs are taken apart into the parts of the network that determine them."""

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tpuconvert as tc
from tests.support.onnx.models import one
from tpuconvert.optimizer.quantize.search.output_branches import ErrorScale, OutputBranches
from tpuconvert.optimizer.quantize.search.output_error import Errors, OutputError
from tpuconvert.schema.types import Chip


def detector(batch: int | str = 1, size: int | str = 8) -> Any:
    """Two scales of a detector with boxes and scores in one list, as YOLO has it: [batch, 4 + 3, positions]."""
    rng = np.random.default_rng(0)
    constants = {"flat": np.array([0, 7, -1]), "sizes": np.array([4, 3]), "anchor": np.full((1, 4, 1), 100, np.float32)}
    nodes = []
    for scale, stride in (("p3", 1), ("p4", 2)):
        for part, channels in (("box", 4), ("class", 3)):
            weight = rng.normal(size=(channels, 3, stride, stride)).astype(np.float32)
            constants[f"{scale}.{part}.w"] = weight
            nodes.append(one("Conv", "x", f"{scale}.{part}.w", outputs=[f"{scale}.{part}"], strides=[stride, stride]))
        nodes.append(one("Concat", f"{scale}.box", f"{scale}.class", outputs=[f"{scale}.all"], axis=1))
        nodes.append(one("Reshape", f"{scale}.all", "flat", outputs=[f"{scale}.flat"]))
    nodes += [
        one("Concat", "p3.flat", "p4.flat", outputs=["joined"], axis=2),
        one("Split", "joined", "sizes", outputs=["offsets", "logits"], axis=1),
        one("Add", "offsets", "anchor", outputs=["boxes"]),
        one("Sigmoid", "logits", outputs=["scores"]),
        one("Concat", "boxes", "scores", outputs=["y"], axis=1),
    ]
    return helper.make_model(
        helper.make_graph(
            nodes,
            "detector",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, size, size])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(array, name) for name, array in constants.items()],
        ),
        opset_imports=[helper.make_opsetid("", 13)],
        ir_version=8,
    )


@pytest.mark.parametrize(("batch", "size"), [(1, 8), ("N", "S")])
def test_boxes_and_scores_of_each_scale_are_branches(batch, size):
    graph = tc.convert(detector(batch, size)).graph
    feed = {"x": np.zeros((2 if batch == "N" else 1, 3, 8, 8), np.float32)}
    found = OutputBranches(graph).of("y", feed)
    scales = {branch.tensor: branch.scale for branch in found.branches}
    assert scales == {
        "p3.box": ErrorScale.LINEAR, "p4.box": ErrorScale.LINEAR,
        "p3.class": ErrorScale.LOGIT, "p4.class": ErrorScale.LOGIT,
    }  # fmt: skip
    assert found.labels is not None and found.labels.shape == (len(feed["x"]), 7, 64 + 16)
    names = np.array([branch.tensor for branch in found.branches])[found.labels[0]]
    assert (names[:4, :64] == "p3.box").all() and (names[:4, 64:] == "p4.box").all()
    assert (names[4:, :64] == "p3.class").all() and (names[4:, 64:] == "p4.class").all()


def test_an_error_of_scores_is_not_hidden_by_boxes():
    graph = tc.convert(detector()).graph
    x = np.random.default_rng(1).normal(size=(4, 1, 3, 8, 8)).astype(np.float32)
    feeds = [{"x": item} for item in x]
    error = OutputError(graph, Chip.BM1686, feeds)
    with tc.Session(tc.convert(detector())) as session:
        floats = [session.run(feed)["y"] for feed in feeds]

    def without_scores(array: Any) -> dict[str, Any]:
        lost = array.copy()
        lost[:, 4:] = 0.5
        return {"y": lost}

    found = error.compare(without_scores(array) for array in floats)
    levels = dict(zip((branch.tensor for branch in error.branches), found.branches.mean(axis=1), strict=True))
    assert levels["p3.box"] == levels["p4.box"] == 0
    assert levels["p3.class"] == pytest.approx(1) and levels["p4.class"] == pytest.approx(1)
    exact = error.compare({"y": array} for array in floats)
    assert found.harms(exact) and not exact.harms(found)


def test_a_rise_in_one_sample_alone_does_no_harm():
    start = Errors(np.full((1, 8), 0.01), np.full((1, 8), 0.01))
    for samples, is_harm in ((1, False), (2, True)):
        risen = np.full((1, 8), 0.0101)
        risen[0, :samples] = 1.0
        assert Errors(risen, start.large_branches).harms(start) is is_harm


def test_a_chain_is_one_branch():
    graph = tc.convert(
        helper.make_model(
            helper.make_graph(
                [one("Relu", "x", outputs=["a"]), one("Softmax", "a", outputs=["y"], axis=1)],
                "chain",
                [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 5])],
                [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5])],
            ),
            opset_imports=[helper.make_opsetid("", 13)],
            ir_version=8,
        )
    ).graph
    found = OutputBranches(graph).of("y", {"x": np.zeros((1, 5), np.float32)})
    assert [branch.scale for branch in found.branches] == [ErrorScale.LOGARITHM]
    assert found.labels is None


def test_feeds_of_other_extents_have_the_same_branches():
    graph = tc.convert(detector("N", "S")).graph
    branches = OutputBranches(graph)
    small, large = ({"x": np.zeros((1, 3, size, size), np.float32)} for size in (8, 12))
    first, second = branches.of("y", small), branches.of("y", large)
    assert first.branches == second.branches
    assert second.labels is not None and second.labels.shape == (1, 7, 144 + 36)
    assert set(np.unique(second.labels)) == set(range(4))
