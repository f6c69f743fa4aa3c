"""A case: one node with its inputs, built as a model in any opset that supports the node."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, defs, helper

from tests.support.onnx.models import model, one
from tpuconvert.schema.types import Array

FIRST_OPSET = 7
"""Oldest opset of the cases: other engines are not guaranteed to run older ones."""


def i64(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


def a(**attributes: Any) -> dict[str, Any]:
    return attributes


@dataclass(frozen=True)
class Case:
    """``x`` are the model's inputs; ``constants`` follow them, None omits an input.

    ``since`` and ``until`` are for a node that the schemas of other versions accept too, but that means nothing there,
    or that no other implementation has. ``differs`` says why onnxruntime is not asked: the evaluator is.
    """

    op: str
    x: Sequence[Array]
    constants: Sequence[Any] = ()
    attributes: dict[str, Any] = field(default_factory=dict)
    opset: int = 17
    outputs: int = 1
    atol: float = 2e-6
    since: int = 1
    until: int = 99
    differs: str = ""

    def __str__(self) -> str:
        settings = ",".join(f"{key}={_short(value)}" for key, value in self.attributes.items())
        shapes = "x".join("_".join(map(str, np.shape(array))) or "s" for array in self.all_inputs if array is not None)
        return f"{self.op}-{self.opset}({settings})[{shapes}]"

    @property
    def all_inputs(self) -> list[Any]:
        """All inputs in the order of the operator."""
        return [*self.x, *self.constants]

    @property
    def feeds(self) -> dict[str, Array]:
        """Graph inputs by name."""
        return {f"x{index}": np.asarray(array) for index, array in enumerate(self.x) if array is not None}

    def model(self, opset: int | None = None) -> onnx.ModelProto:
        """The model in one opset."""
        constants = {f"c{k}": np.asarray(c) for k, c in enumerate(self.constants) if c is not None}
        names = ["" if x is None else f"x{k}" for k, x in enumerate(self.x)]
        names += ["" if c is None else f"c{k}" for k, c in enumerate(self.constants)]
        outputs = [f"y{index}" for index in range(self.outputs)]
        node = one(self.op, *names, outputs=outputs, **self.attributes)
        return model([node], self.feeds, outputs, constants, opset=opset or self.opset, ir_version=10)

    def in_all_versions(self, newest: int) -> Iterator["Case"]:
        """The case in the first opset of every version of the operator that has these inputs and attributes.

        The last version is also tried in the newest opset.
        """
        versions = versions_of(self.op)
        newest = min(max(newest, versions[0].since_version) if versions else self.opset, self.until)
        if not versions:  # a former operator name that the standard has removed
            yield self
        for index, schema in enumerate(versions):
            first = max(schema.since_version, FIRST_OPSET)
            last = min(versions[index + 1].since_version - 1 if index + 1 < len(versions) else newest, newest)
            is_gone = schema.deprecated and index + 1 == len(versions)
            if max(first, self.since) <= last and not is_gone and self._fits(schema):
                first = max(first, self.since)
                yield replace(self, opset=first)
                if index + 1 == len(versions) and newest > first:
                    yield replace(self, opset=newest)

    def _fits(self, schema: defs.OpSchema) -> bool:
        given = [None if array is None else np.asarray(array) for array in self.all_inputs]
        if not schema.min_input <= len(given) <= schema.max_input or not set(self.attributes) <= set(schema.attributes):
            return False
        if self.outputs > schema.max_output:
            return False
        if any(item.required and name not in self.attributes for name, item in schema.attributes.items()):
            return False
        for index, array in enumerate(given):
            formal = schema.inputs[min(index, len(schema.inputs) - 1)]
            if array is None:
                if formal.option == defs.OpSchema.FormalParameterOption.Single:
                    return False
            elif _type_text(array) not in formal.types:
                return False
        return True


def versions_of(op: str, domain: str = "") -> list[defs.OpSchema]:
    """All schema versions of an operator, oldest first."""
    return _VERSIONS.get((domain, op), [])


def _all_versions() -> Mapping[tuple[str, str], list[defs.OpSchema]]:
    found: dict[tuple[str, str], list[defs.OpSchema]] = {}
    for schema in sorted(defs.get_all_schemas_with_history(), key=lambda item: item.since_version):
        found.setdefault((schema.domain, schema.name), []).append(schema)
    return found


_VERSIONS = _all_versions()


def _type_text(array: Array) -> str:
    name = TensorProto.DataType.Name(helper.np_dtype_to_tensor_dtype(array.dtype)).lower()
    return f"tensor({name})"


def _short(value: Any) -> str:
    return str(value).replace(" ", "")[:24]
