"""Run ONNX operators on extreme integers and write their outcomes into docs/inside/conformance.md.

Every case is one operator. It is converted for BM1684 and BM1686 and run by both engines. The expected integers are
computed by ONNX Runtime without optimization or, for types that it lacks, by the evaluator of the ``onnx`` package.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.reference
from onnx import defs, helper, numpy_helper

import tpuconvert as tc
from tools.pages import generated_file
from tpuconvert.schema.types import Array

TOOL = "tools.exactness.integer_types"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "inside" / "conformance.md"
CHIPS = ("bm1684", "bm1686")
TYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
OPSET = 18

EXACT, WARNED, REFUSED = "exact", "warned", "refused"
"""Outcomes: equal integers, a warning that names the node, or an error that names it."""


@dataclass(frozen=True)
class IntegerCase:
    """One node; ``inputs`` are inputs of the model, ``constants`` follow them."""

    op: str
    type: str
    inputs: Mapping[str, Array]
    constants: Mapping[str, Array] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""

    def __str__(self) -> str:
        return "-".join(part for part in (self.op, self.type, self.note) if part)

    def model(self) -> onnx.ModelProto:
        """The model, whose output types are inferred."""
        nodes = [helper.make_node(self.op, [*self.inputs, *self.constants], self.outputs, "node", **self.attributes)]
        inputs = [_info(name, array) for name, array in self.inputs.items()]
        outputs = [helper.make_empty_tensor_value_info(name) for name in self.outputs]
        initializers = [numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        graph = helper.make_graph(nodes, "integers", inputs, outputs, initializers)
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
        return onnx.shape_inference.infer_shapes(proto)

    @property
    def outputs(self) -> list[str]:
        """Names of the outputs."""
        return {"TopK": ["y", "indices"], "Split": ["y", "z"]}.get(self.op, ["y"])


def _info(name: str, array: Array) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def extremes(type_: str) -> Array:
    """Integers around the limits of a type, of smaller types and of FLOAT32. Wider types are limited to INT32."""
    limits = np.iinfo(type_)
    low, high = max(limits.min, -(1 << 31)), min(limits.max, (1 << 31) - 1)
    near = [low, low + 1, high // 2, high - 1, high, -129, -1, 0, 1, 2, 3, 7, 77, 100, 127, 128, 200, 255]
    far = [32767, 32768, 65535, (1 << 24) + 1, (1 << 30) + 3, -(1 << 24) - 1]
    return np.array(sorted({x for x in near + far if low <= x <= high}), type_)


def cases() -> Iterator[IntegerCase]:
    """All cases."""
    for type_ in TYPES:
        x = extremes(type_)
        yield from _elementwise(type_, x)
        yield from _casts(type_, x)
        yield from _along_axes(type_, x)
        yield from _movement(type_, np.resize(x, (5, 4)), x)


_PAIRS = ("Add", "Sub", "Mul", "Max", "Min", "BitwiseAnd", "BitwiseOr", "BitwiseXor")
_RELATIONS = ("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual")


def _elementwise(type_: str, x: Array) -> Iterator[IntegerCase]:
    a, b = np.repeat(x, len(x)), np.tile(x, len(x))
    for op in (*_PAIRS, *_RELATIONS):
        yield IntegerCase(op, type_, {"a": a, "b": b})
        if op in ("Add", "Sub", "Mul", "Equal"):
            yield IntegerCase(op, type_, {"a": x}, {"b": x[-1:]}, note="constant")
    lowest = np.iinfo(type_).min
    defined = (b != 0) & ~((a == lowest) & (b.astype(object) == -1))  # the others end the process in ONNX Runtime
    for op, attributes in (("Div", {}), ("Mod", {}), ("Mod", {"fmod": 1})):
        yield IntegerCase(op, type_, {"a": a[defined], "b": b[defined]}, {}, attributes, "fmod" if attributes else "")
    for op in ("Neg", "Abs", "Sign", "BitwiseNot"):
        if op != "Neg" or lowest < 0:
            yield IntegerCase(op, type_, {"a": x})
    amounts = np.array([0, 1, 3, 5, np.iinfo(type_).bits - 1], type_)
    for direction in ("LEFT", "RIGHT"):
        feeds = {"a": np.repeat(x, len(amounts)), "b": np.tile(amounts, len(x))}
        yield IntegerCase("BitShift", type_, feeds, {}, {"direction": direction}, direction)
    small = x[np.abs(x.astype(np.float64)) <= 100]
    for exponent in (0, 2, 3):
        yield IntegerCase("Pow", type_, {"a": small}, {"b": np.array([exponent], type_)}, note=str(exponent))
    yield IntegerCase("PRelu", type_, {"a": x}, {"slope": np.array([2], type_)})
    yield IntegerCase("Clip", type_, {"a": x}, {"low": np.array(1, type_), "high": np.array(100, type_)})
    yield IntegerCase("Where", type_, {"condition": np.arange(len(a)) % 2 == 0, "a": a, "b": b})


def _casts(type_: str, x: Array) -> Iterator[IntegerCase]:
    for target in (*TYPES, "float32", "bool"):
        if target != type_:
            code = helper.np_dtype_to_tensor_dtype(np.dtype(target))
            yield IntegerCase("Cast", type_, {"a": x}, {}, {"to": code}, target)
    code = helper.np_dtype_to_tensor_dtype(np.dtype(type_))
    floats = np.array(
        [0, 0.5, 1.5, 2.5, 100.7, 127, *([-0.5, -1.9, -128] if np.iinfo(type_).min < 0 else [])], np.float32
    )
    for source in (floats, np.array([True, False])):
        yield IntegerCase("Cast", type_, {"a": source}, {}, {"to": code}, f"from-{source.dtype}")
    yield IntegerCase("CastLike", type_, {"a": x}, {"like": np.zeros(1, np.int8)})


def _along_axes(type_: str, x: Array) -> Iterator[IntegerCase]:
    a, b = np.repeat(x, len(x)), np.tile(x, len(x))
    pairs, triples, axis = np.stack([a, b], 1), np.stack([a, b, a], 1), np.array([1])
    for name in ("Sum", "Max", "Min", "Prod", "Mean", "SumSquare", "L1"):
        yield IntegerCase(f"Reduce{name}", type_, {"a": pairs}, {"axes": axis}, {"keepdims": 0})
    yield IntegerCase("CumSum", type_, {"a": pairs}, {"axis": np.array(1)})
    for op in ("ArgMax", "ArgMin"):
        for last in (0, 1):
            attributes = {"axis": 1, "select_last_index": last}
            yield IntegerCase(op, type_, {"a": triples}, {}, attributes, "last" if last else "")
    yield IntegerCase("TopK", type_, {"a": triples}, {"k": np.array([2])})
    for note, numbers in (("", x), ("small", x[np.abs(x.astype(np.float64)) < 200])):
        left, right = np.resize(numbers, (5, 4)), np.resize(numbers[::-1], (4, 3))
        yield IntegerCase("MatMul", type_, {"a": left, "b": right}, note=note)
        yield IntegerCase("Gemm", type_, {"a": left, "b": right}, note=note)


def _movement(type_: str, x: Array, numbers: Array) -> Iterator[IntegerCase]:
    """``x`` has the shape [5, 4]."""
    index, indices = np.array([0, -1, 2]), np.array([[0, 1, 2, 0]])
    yield IntegerCase("Gather", type_, {"a": x, "i": index})
    yield IntegerCase("Gather", type_, {"a": x}, {"i": index}, note="constant")
    yield IntegerCase("GatherElements", type_, {"a": x, "i": indices})
    yield IntegerCase("GatherND", type_, {"a": x, "i": np.array([[0, 1], [2, 3]])})
    for reduction in ("none", "add"):
        for is_constant in (False, True):
            given, rows = {"a": x}, {"i": np.array([[0], [0], [3]]), "u": x[2:5]}
            feeds, constants = (given, rows) if is_constant else ({**given, **rows}, {})
            note = f"{reduction}{'-constant' if is_constant else ''}"
            if reduction == "add" or not is_constant:
                yield IntegerCase("ScatterND", type_, feeds, constants, {"reduction": reduction}, note)
    yield IntegerCase("ScatterElements", type_, {"a": x, "i": indices, "u": x[4:]})
    operators: Sequence[tuple[str, Mapping[str, Any], Mapping[str, Any]]] = (
        ("Transpose", {}, {}),
        ("Flatten", {}, {}),
        ("Trilu", {}, {}),
        ("Reshape", {"shape": np.array([4, 5])}, {}),
        ("Expand", {"shape": np.array([2, 5, 4])}, {}),
        ("Tile", {"repeats": np.array([2, 1])}, {}),
        ("Pad", {"pads": np.array([1, 0, 0, 2]), "value": numbers[-1]}, {}),
        ("Slice", {"starts": np.array([3]), "ends": np.array([0]), "axes": np.array([0]), "steps": np.array([-1])}, {}),
        ("ReverseSequence", {"lengths": np.array([2, 5, 1, 3])}, {}),
        ("Compress", {"condition": np.array([1, 0, 1, 0, 1], bool)}, {"axis": 0}),
        ("Split", {}, {"axis": 1, "num_outputs": 2}),
        ("NonZero", {}, {}),
    )
    for op, arrays, attributes in operators:
        yield IntegerCase(op, type_, {"a": x}, {key: np.asarray(array) for key, array in arrays.items()}, attributes)
    yield IntegerCase("Concat", type_, {"a": x, "b": x[::-1].copy()}, {}, {"axis": 0})
    planes = np.resize(numbers, (1, 4, 2, 2))
    yield IntegerCase("DepthToSpace", type_, {"a": planes}, {}, {"blocksize": 2})
    yield IntegerCase("MaxPool", type_, {"a": planes}, {}, {"kernel_shape": [2, 2]})


def is_standard(case: IntegerCase) -> bool:
    """Return True if the standard permits the type for the first operand that has it."""
    schema = defs.get_schema(case.op, OPSET)
    permitted = {each.type_param_str: each.allowed_type_strs for each in schema.type_constraints}
    for declared, array in zip(schema.inputs, (*case.inputs.values(), *case.constants.values()), strict=False):
        if array.dtype == case.type:
            return f"tensor({case.type})" in permitted.get(declared.type_str, [declared.type_str])
    return True


def expected(case: IntegerCase) -> list[Array] | None:
    """Outputs by ONNX Runtime, or by the evaluator of the ``onnx`` package; None if neither has the type."""
    # The module is an optional requirement.
    import onnxruntime

    proto = case.model()
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    for run in (
        lambda: onnxruntime.InferenceSession(proto.SerializeToString(), settings, ["CPUExecutionProvider"]).run,
        lambda: onnx.reference.ReferenceEvaluator(proto).run,
    ):
        try:
            with np.errstate(all="ignore"):
                return [np.asarray(array) for array in run()(None, dict(case.inputs))]
        except Exception:  # each raises its own kinds for a type without a kernel
            continue
    return None


class WrongIntegersError(AssertionError):
    """A result differs, and no warning names the node."""


def outcome(case: IntegerCase, chip: str, outputs: Sequence[Array]) -> str:
    """Convert and run a case.

    Raises:
        WrongIntegersError: results differ without a warning.
    """
    try:
        model = tc.convert(case.model(), chip=chip)
    except tc.UnsupportedError:
        return REFUSED
    is_warned = any(note.kind == "deviation" and note.node == "node" for note in model.notes)
    for backend in ("reference", "native"):
        with tc.Session(model, backend=backend) as session:
            arrays = session.run(dict(case.inputs))
        for reference, got in zip(outputs, arrays.values(), strict=True):
            is_equal = got.dtype == reference.dtype and np.array_equal(got, reference)
            if not is_equal and not is_warned:
                raise WrongIntegersError(f"{case} on {chip}, {backend}: {got.tolist()}, expected {reference.tolist()}")
    return WARNED if is_warned else EXACT


def table() -> dict[str, dict[str, dict[str, set[str]]]]:
    """Run all cases of the standard: operator -> type -> chip -> outcomes."""
    rows: dict[str, dict[str, dict[str, set[str]]]] = {}
    for case in cases():
        if not is_standard(case) or (outputs := expected(case)) is None:
            continue
        for chip in CHIPS:
            row = rows.setdefault(case.op, {}).setdefault(case.type, {})
            row.setdefault(chip, set()).add(outcome(case, chip, outputs))
    return rows


_TEXT = """# Integer types of ONNX operators

Made by `python -m tools.exactness.integer_types`, which runs {count} cases: every operator on the limits of its type,
of smaller types and of FLOAT32, on BM1684 and BM1686, in both engines. Expected integers are computed by ONNX Runtime
or, for types that it lacks, by the evaluator of the `onnx` package.

- **exact**: 8- and 16-bit integers wrap around as the standard says, in operators and in casts.
- **warned**: exact for small integers. The graph holds 32- and 64-bit integers as INT32, which saturates. BM1682 and
  BM1684 compute INT32 in FLOAT32, and some operators of every chip do, exact up to 2^24. If the bounds of the model's
  inputs and constants do not prove that all integers are in the exact range, the conversion prints a warning that
  names the node, and `verify` does not call its results exact.
- **refused**: the conversion ends with an error that names the node.
- Empty: the standard does not have the type. 64-bit inputs outside of INT32 are an error when the model runs.

A cell with two words has cases of both. `warned` on BM1684 only is marked with `*`.

"""


def page() -> bytes:
    """The page."""
    rows = table()
    lines = ["| operator | " + " | ".join(TYPES) + " |", "| --- " * (len(TYPES) + 1) + "|"]
    for op in sorted(rows):
        lines.append(f"| {op} | " + " | ".join(_cell(rows[op].get(type_, {})) for type_ in TYPES) + " |")
    count = len(CHIPS) * sum(is_standard(case) for case in cases())
    text = _TEXT.format(count=count) + "\n".join(lines)
    return generated_file.replace_part(PAGE, "integers", TOOL, text).encode()


def _cell(outcomes: Mapping[str, set[str]]) -> str:
    if not outcomes:
        return ""
    both = set.union(*outcomes.values())
    words = [word for word in (EXACT, WARNED, REFUSED) if word in both]
    star = "*" if WARNED in both and WARNED not in outcomes["bm1686"] else ""
    return ", ".join(f"{word}{star}" if word == WARNED else word for word in words)


if __name__ == "__main__":
    sys.exit(generated_file.write_or_check(PAGE, page, tool=TOOL, description="Write the integer types."))
