"""Evaluate one ONNX operator with the reference implementation of the onnx package."""

from typing import Any

from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from tpuconvert.schema.types import Array


def run_node(op_type: str, inputs: list[Array | None], opset: int = 19, **attributes: Any) -> Array:
    """The first result. None is an absent input."""
    names = ["" if array is None else f"x{index}" for index, array in enumerate(inputs)]
    feeds = {name: array for name, array in zip(names, inputs, strict=True) if array is not None}
    graph = helper.make_graph(
        [helper.make_node(op_type, names, ["y"], **attributes)],
        op_type,
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), list(array.shape))
            for name, array in feeds.items()
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    result: Array = ReferenceEvaluator(model).run(None, feeds)[0]
    return result
