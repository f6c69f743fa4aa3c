"""Evaluate ONNX models and single operators with the reference implementation of the onnx package.

The package's older versions lack operators, and their evaluators have defects. With such a version the tests that need
the missing part skip; with NEWEST they run and must pass.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
import pytest
from onnx import ModelProto, TensorProto, helper
from onnx.reference import ReferenceEvaluator
from packaging.version import Version

from tpuconvert.schema.types import Array
from tpuconvert.verify.onnx_evaluator import WRONG_BEFORE

NEWEST = "1.23"
"""From this version on, the evaluator has every operator and attribute of the tests."""


def is_older_than(version: str) -> bool:
    """Return True if the installed onnx precedes a version."""
    return Version(onnx.__version__) < Version(version)


NEEDS_NEWEST = pytest.mark.skipif(
    is_older_than(NEWEST), reason=f"onnx {onnx.__version__} lacks operators that are listed; needs {NEWEST}"
)


def skip_where_wrong(model: ModelProto) -> None:
    """Skip the test if the installed onnx evaluates a node of the model, but not as the text of its operator says."""
    for node in model.graph.node:
        for attribute in ("", *(item.name for item in node.attribute)):
            version = WRONG_BEFORE.get((node.op_type, attribute))
            if version is not None and is_older_than(version):
                pytest.skip(f"onnx {onnx.__version__}: the evaluator of {node.op_type} is wrong before {version}")


def evaluate(model: ModelProto, names: Sequence[str] | None, feeds: Mapping[str, Array]) -> list[Array]:
    """The named results, all with None. Skips the test if an old onnx cannot evaluate the model, or does so wrongly."""
    skip_where_wrong(model)
    try:
        results: list[Array] = ReferenceEvaluator(model).run(names, dict(feeds))
    except Exception as error:  # NotImplementedError, RuntimeError, TypeError, ValueError and more, by operator
        if not is_older_than(NEWEST):
            raise
        pytest.skip(f"onnx {onnx.__version__} does not evaluate this model: {str(error).splitlines()[0]}")
    return results


def run_node(op_type: str, inputs: Sequence[Array | None], opset: int = 19, **attributes: Any) -> Array:
    """The only result. None is an absent input."""
    return run_node_with_outputs(op_type, inputs, 1, opset, **attributes)[0]


def run_node_with_outputs(
    op_type: str, inputs: Sequence[Array | None], count: int, opset: int = 19, **attributes: Any
) -> list[Array]:
    """The first ``count`` results. None is an absent input."""
    names = ["" if array is None else f"x{index}" for index, array in enumerate(inputs)]
    feeds = {name: array for name, array in zip(names, inputs, strict=True) if array is not None}
    outputs = [f"y{index}" for index in range(count)]
    graph = helper.make_graph(
        [helper.make_node(op_type, names, outputs, **attributes)],
        op_type,
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), list(array.shape))
            for name, array in feeds.items()
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
    )
    return evaluate(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]), None, feeds)
