"""Text of a module in the vendor compiler's ``tpu`` dialect, in MLIR's generic form.

The compiler accepts any attribute name in this form and silently ignores the ones it does not know. ``OPERATIONS`` is
therefore the only source of attribute names, kinds and defaults. The vendor tests compare it with the definitions of
the installed compiler.

Source: the operation definitions (``TpuOps.td``) of tpu_mlir 1.30.2.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tpuconvert.exporters.lowerings import NoExactForm
from tpuconvert.schema.graph.graph import Node
from tpuconvert.schema.types import Array, DType, QuantParams

COMPILER_VERSION = "1.30.2"
"""Version of the vendor's package ``tpu_mlir`` that the text form was tested with."""

REQUIRED = object()
"""Marker instead of a default, for an attribute that must be given."""


class Operation(NamedTuple):
    """Definition of an operation of the dialect.

    Attributes:
        operands: number of operands; missing ones at the end are written as ``none``. -1: any number.
        attributes: name -> kind and default.
    """

    operands: int
    attributes: Mapping[str, tuple[str, Any]]


_RELU = {"do_relu": ("bool", False), "relu_limit": ("f64", -1.0)}
_CONST = {"const_val": ("f64", REQUIRED), "multiplier": ("si32", 1), "rshift": ("si32", 0), **_RELU}
_FACTORS = {"multipliers": ("ints", None), "rshifts": ("ints", None)}
_SCALED_CONST = {"const_val": ("f64", REQUIRED), **_RELU}
_WINDOW = {"strides": ("ints", REQUIRED), "pads": ("ints", REQUIRED), "kernel_shape": ("ints", REQUIRED)}

OPERATIONS: Mapping[str, Operation] = {
    "top.None": Operation(0, {}),
    "top.Input": Operation(1, {}),
    "top.Weight": Operation(0, {}),
    "tpu.A16MatMul": Operation(
        5,
        {
            "weight_bits": ("i64", REQUIRED),
            "sign": ("bool", True),
            "w_transpose": ("bool", False),
            "q_group_size": ("i64", REQUIRED),
            "dq_type": ("string", "NONE"),
        },
    ),
    "tpu.Active": Operation(1, {"mode": ("active_mode", REQUIRED), "coeffs": ("floats", None)}),
    "tpu.Add": Operation(-1, {**_RELU, **_FACTORS}),
    "tpu.AddConst": Operation(1, _CONST),
    "tpu.BinaryShift": Operation(
        2,
        {
            "mode": ("string", REQUIRED),
            "shift": ("si32", REQUIRED),
            "is_reverse": ("bool", False),
            "saturation": ("bool", True),
            "round_mode": ("round_mode", "HalfUp"),
        },
    ),
    "tpu.Clip": Operation(1, {"min": ("f64", REQUIRED), "max": ("f64", REQUIRED)}),
    "tpu.Compare": Operation(2, {"mode": ("string", REQUIRED)}),
    "tpu.CompareConst": Operation(
        1, {"mode": ("string", REQUIRED), "const_val": ("f64", REQUIRED), "inversed": ("bool", False)}
    ),
    "tpu.Cast": Operation(1, {"with_scale": ("bool", True), "round_mode": ("round_mode", "HalfAwayFromZero")}),
    "tpu.Concat": Operation(-1, {"axis": ("si32", REQUIRED), "only_merge": ("bool", False), **_RELU}),
    "tpu.Conv2D": Operation(
        3,
        {
            **_WINDOW,
            **_RELU,
            "dilations": ("ints", REQUIRED),
            "group": ("i64", 1),
            "kernel_zp": ("i64", 0),
            "multiplier": ("ints", None),
            "rshift": ("ints", None),
            "quant_mode": ("rq_mode", "MultiplierShift"),
            "round_mode": ("round_mode", "HalfUp"),
            "coeff_merged": ("bool", False),
            "use_3ic_optimize": ("i64", 0),
            "weight_is_coeff": ("i64", 1),
            "with_bias": ("bool", True),
        },
    ),
    "tpu.Deconv": Operation(
        3,
        {
            **_WINDOW,
            **_RELU,
            "dilations": ("ints", REQUIRED),
            "output_padding": ("ints", (0, 0)),
            "group": ("i64", 1),
            "quant_mode": ("rq_mode", "MultiplierShift"),
            "with_bias": ("bool", True),
        },
    ),
    "tpu.Div": Operation(
        -1, {**_RELU, "is_reverse": ("bool", False), "multiplier": ("si32", 1), "rshift": ("si32", 0)}
    ),
    "tpu.Gather": Operation(3, {"axis": ("si32", REQUIRED), "if_neg_index": ("bool", False)}),
    "tpu.GroupNorm": Operation(5, {"num_groups": ("i64", REQUIRED), "eps": ("f64", REQUIRED)}),
    "tpu.Interp": Operation(
        3,
        {
            "scale_h": ("f64", REQUIRED),
            "scale_w": ("f64", REQUIRED),
            "mode": ("mode", REQUIRED),
            "coord_mode": ("coord_mode", REQUIRED),
        },
    ),
    "tpu.LayerNorm": Operation(
        5, {"axis": ("si32", REQUIRED), "eps": ("f64", REQUIRED), "normalized_shape": ("ints", REQUIRED)}
    ),
    "tpu.LeakyRelu": Operation(1, {"alpha": ("f64", REQUIRED)}),
    "tpu.Lut": Operation(2, {}),
    "tpu.MatMul": Operation(
        5,
        {
            **_RELU,
            "left_transpose": ("bool", False),
            "right_transpose": ("bool", False),
            "output_transpose": ("bool", False),
            "hdim_is_batch": ("bool", False),
            "keep_dims": ("bool", True),
            "multipliers": ("ints", (1,)),
            "rshifts": ("ints", (0,)),
            "right_zp": ("i64", 0),
            "input_zp": ("i64", 0),
            "quant_mode": ("rq_mode", "MultiplierShift"),
            "left_reuse": ("i64", 1),
            "fuse_rq": ("bool", False),
            "round_mode": ("round_mode", "HalfUp"),
        },
    ),
    "tpu.MaxConst": Operation(1, _CONST),
    "tpu.Max": Operation(-1, {**_RELU, "multipliers": ("ints", (1, 1)), "rshifts": ("ints", (0, 0))}),
    "tpu.Min": Operation(-1, {**_RELU, "multipliers": ("ints", (1, 1)), "rshifts": ("ints", (0, 0))}),
    "tpu.MinConst": Operation(1, _CONST),
    "tpu.Mul": Operation(-1, {**_RELU, "multiplier": ("si32", 1), "rshift": ("si32", 0)}),
    "tpu.MulConst": Operation(1, _SCALED_CONST),
    "tpu.Pad": Operation(5, {"paddings": ("ints", REQUIRED), "val": ("f64", 0.0), "mode": ("Pad_Mode", "constant")}),
    "tpu.Permute": Operation(2, {"order": ("ints", REQUIRED)}),
    "tpu.Pool2D": Operation(
        1,
        {
            **_WINDOW,
            **_RELU,
            "pool_mode": ("pool_mode", REQUIRED),
            "pad_value": ("i64", 0),
            "is_adaptive": ("bool", False),
            "keepdims": ("bool", True),
            "count_include_pad": ("bool", False),
        },
    ),
    "tpu.RMSNorm": Operation(2, {"eps": ("f64", REQUIRED), "weight_keep_f32": ("bool", False)}),
    "tpu.Reciprocal": Operation(1, _SCALED_CONST),
    "tpu.Reduce": Operation(3, {"axes": ("ints", REQUIRED), "keepdims": ("bool", True), "mode": ("string", REQUIRED)}),
    "tpu.Relu": Operation(1, {"relu_limit": ("f64", -1.0)}),
    "tpu.RequantIntAxis": Operation(
        2,
        {
            "quant_mode": ("rq_mode", REQUIRED),
            "round_mode": ("round_mode", REQUIRED),
            "rq_axis": ("si32", 1),
            "fuse_rq_axis": ("bool", False),
        },
    ),
    "tpu.Reshape": Operation(-1, {"shape": ("ints", ()), "flatten_start_dim": ("i64", -1)}),
    "tpu.Slice": Operation(
        5,
        {
            "offset": ("ints", REQUIRED),
            "ends": ("ints", REQUIRED),
            "steps": ("ints", REQUIRED),
            "axes": ("ints", ()),
            "hasparamConvert_axes": ("ints", ()),
        },
    ),
    "tpu.Softmax": Operation(
        6,
        {
            "axis": ("si32", REQUIRED),
            "log": ("bool", False),
            "beta": ("f64", 1.0),
            "round_mode": ("round_mode", "HalfAwayFromZero"),
        },
    ),
    "tpu.Sub": Operation(-1, {**_RELU, **_FACTORS, "is_reverse": ("bool", False)}),
    "tpu.SubConst": Operation(1, {**_CONST, "is_reverse": ("bool", False)}),
    "tpu.Tile": Operation(2, {"tile": ("ints", REQUIRED)}),
    "tpu.Upsample": Operation(2, {"scale_h": ("i64", REQUIRED), "scale_w": ("i64", REQUIRED), **_RELU}),
    "tpu.Where": Operation(
        4,
        {
            "x_is_const": ("bool", False),
            "y_is_const": ("bool", False),
            "x_const_val": ("f64", 0.0),
            "y_const_val": ("f64", 0.0),
        },
    ),
}
"""Operation name -> definition, for all operations that the export uses."""

FLOAT_TYPES = ("f32", "f16", "bf16")

_EXACT_IN_F32 = frozenset(
    {
        "top.Weight",
        "tpu.Cast",
        "tpu.Clip",
        "tpu.Concat",
        "tpu.Gather",
        "tpu.Max",
        "tpu.MaxConst",
        "tpu.Min",
        "tpu.MinConst",
        "tpu.Pad",
        "tpu.Permute",
        "tpu.Relu",
        "tpu.Reshape",
        "tpu.Slice",
        "tpu.Tile",
        "tpu.Upsample",
    }
)
"""Operations that give equal numbers on every device also in f32."""

_STORAGE = {"si8": np.int8, "ui8": np.uint8, "si32": np.int32, "i32": np.int32, "i16": np.int16, "f32": np.float32}
"""Element type of a weight -> NumPy type of its array in the .npz file."""

_FLOAT_STORAGE: Mapping[str, Callable[[Array], Array]] = {
    "f32": lambda array: array,
    "f16": lambda array: _in_float16(array).astype(np.float16).view(np.uint16),
    "bf16": lambda array: _bfloat16_bits(array),
}
"""Floating-point type of a weight -> function that returns the array of the .npz file: bit patterns of 16 bits."""

_QUANTIZED = {DType.INT8: "i8", DType.UINT8: "u8", DType.INT16: "i16", DType.UINT16: "u16", DType.INT32: "i32"}


LARGEST_FLOAT16 = float(np.finfo(np.float16).max)
LARGEST_BFLOAT16 = (2 - 2**-7) * 2.0**127


def in_range(number: float, kind: str) -> float:
    """Return a number, or the largest one of a floating-point type. Masks of attention have numbers near infinity."""
    largest = {"f16": LARGEST_FLOAT16, "bf16": LARGEST_BFLOAT16}.get(kind, math.inf)
    return number if math.isinf(number) else min(max(number, -largest), largest)


def _in_float16(array: Array) -> Array:
    """Return FLOAT32 numbers in the range of FLOAT16; infinite ones stay."""
    return np.where(np.isinf(array), array, np.clip(array, -LARGEST_FLOAT16, LARGEST_FLOAT16))


def fits(array: Array, kind: str) -> bool:
    """Return True if a floating-point type has the range of FLOAT32 numbers."""
    return kind != "f16" or float(np.abs(array).max(initial=0)) <= LARGEST_FLOAT16


def _bfloat16_bits(array: Array) -> Array:
    """Bit patterns of BFLOAT16 for finite FLOAT32 numbers or infinities, rounded to nearest, ties to even."""
    bits = array.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def rounded_floats(array: Array, kind: str) -> Array:
    """Return FLOAT32 numbers rounded to a floating-point type of weights, as FLOAT32."""
    bits = _FLOAT_STORAGE[kind](array)
    match kind:
        case "f16":
            return bits.view(np.float16).astype(np.float32)
        case "bf16":
            return (bits.astype(np.uint32) << 16).view(np.float32)
        case _:
            return bits


def tensor_type(shape: Sequence[int], element: str) -> str:
    """Return the text of a tensor type, such as ``tensor<1x3x8x8xf32>``."""
    return f"tensor<{'x'.join(map(str, shape))}x{element}>"


def quantized_element(
    dtype: DType, quant: QuantParams, scale: float | None = None, zero_point: int | None = None
) -> str:
    """Return the text of a quantized element type, such as ``!quant.uniform<i8:f32, 0.5:-3>``.

    The type has only one scale: for a per-channel tensor, the largest is used. Only ``tpu.Cast`` reads the scale.

    Args:
        dtype: INT8, UINT8, INT16, UINT16 or INT32.
        quant: quantization parameters of the tensor, with a single zero point.
        scale: replaces the scale of ``quant``.
        zero_point: replaces the zero point of ``quant``.
    """
    number = max(quant.scale) if scale is None else scale
    if zero_point is None:
        zero_point = quant.zero_point[0]
    return f"!quant.uniform<{_QUANTIZED[dtype]}:f32, {number!r}{f':{zero_point}' if zero_point else ''}>"


def integer_type(element: str) -> str:
    """Return the NumPy name of an element type of quantized integers, or an empty string."""
    match = re.match(r"!quant\.uniform<([iu])(\d+):", element)
    return f"{'' if match[1] == 'i' else 'u'}int{match[2]}" if match else ""


def zero_point_of(element: str) -> int:
    """Return the zero point of an element type, 0 if it has none."""
    match = re.fullmatch(r"!quant\.uniform<.*:(-?\d+)>", element)
    return int(match[1]) if match else 0


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor of the MLIR module.

    Attributes:
        shape: extents of the tensor.
        element: element type as text.
        location: unique name of the tensor, which appears in the compiler's messages and in the compiled program.
        is_exact: False for floating-point results that the device may round differently, and integers that follow.
    """

    shape: tuple[int, ...]
    element: str
    location: str
    is_exact: bool = True

    @property
    def type(self) -> str:
        """The tensor type as text."""
        return tensor_type(self.shape, self.element)


@dataclass(eq=False)
class Line:
    """An operation of the module.

    Attributes:
        operation: name in ``OPERATIONS``.
        operands: operands; None for an absent one.
        attributes: all attributes, with the defaults of those that were not given.
        result: the result.
        origin: node of the graph that the operation belongs to; None for an input of the graph.
    """

    operation: str
    operands: tuple[Tensor | None, ...]
    attributes: Mapping[str, Any]
    result: Tensor
    origin: Node | None


@dataclass(eq=False)
class Module:
    """An MLIR module under construction: operations of one function, and weights.

    Args:
        name: symbol name of the module.
        attributes: attributes of the module, as text.
        inputs: inputs of the function.
        lines: operations, in execution order.
        origin: node of the graph that the next operations belong to.
        absent: operations that the chip does not have, with the attribute ``mode`` or an empty string.
    """

    name: str
    attributes: Mapping[str, str]
    absent: Collection[tuple[str, str]] = ()
    inputs: list[Tensor] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    origin: Node | None = None
    _weights: dict[str, Array] = field(default_factory=dict)
    _names: set[str] = field(default_factory=set)

    def unique(self, name: str) -> str:
        """Return an unused location name that begins with ``name``, and reserve it."""
        candidate, count = name, 1
        while candidate in self._names:
            count += 1
            candidate = f"{name}_{count}"
        self._names.add(candidate)
        return candidate

    def add(
        self,
        operation: str,
        operands: Sequence[Tensor | None],
        shape: Sequence[int],
        element: str,
        location: str,
        /,
        *,
        is_exact: bool | None = None,
        **attributes: Any,
    ) -> Tensor:
        """Append an operation. Return its result.

        Args:
            operation: name in ``OPERATIONS``.
            operands: operands of the operation; None for an absent one.
            shape: shape of the result.
            element: element type as text.
            location: name of the result; a suffix is added if the name is in use.
            is_exact: see ``Tensor``. By default the result is exact if all operands are, unless the operation computes
                in floating point.
            **attributes: attributes that differ from the defaults.

        Raises:
            NoExactForm: the chip does not have the operation.
        """
        mode = attributes.get("mode", "")
        if (operation, mode) in self.absent or (operation, "") in self.absent:
            raise NoExactForm(f"the chip has no operation {operation} {mode}".rstrip())
        form = OPERATIONS[operation]
        missing = form.operands - len(operands)
        assert missing >= 0 or form.operands < 0, f"{operation}: {len(operands)} operands"
        if is_exact is None:
            rounds = element in FLOAT_TYPES[1:] or (element == "f32" and operation not in _EXACT_IN_F32)
            is_exact = not rounds and all(operand.is_exact for operand in operands if operand is not None)
        result = Tensor(tuple(shape), element, self.unique(location), is_exact)
        all_operands = (*operands, *(None,) * max(missing, 0))
        if "const_val" in attributes:
            attributes["const_val"] = in_range(float(attributes["const_val"]), element)
        complete = complete_attributes(operation, attributes)
        self.lines.append(Line(operation, all_operands, complete, result, self.origin))
        return result

    def input(self, name: str, shape: Sequence[int], element: str = "f32") -> Tensor:
        """Append an input."""
        tensor = Tensor(tuple(shape), element, self.unique(name))
        self.inputs.append(tensor)
        return tensor

    def weight(self, array: Array, element: str, location: str, shape: Sequence[int] | None = None) -> Tensor:
        """Add a weight. ``element`` is si8, ui8, si32, i32, i16 or f32."""
        result = self.add("top.Weight", (), array.shape if shape is None else shape, element, location)
        stored = np.ascontiguousarray(array, _STORAGE[element])
        assert (stored == array).all(), f"{location}: the weights do not fit {element}"
        self._weights[result.location] = stored.reshape(result.shape)
        return result

    def float_weight(self, array: Array, element: str, location: str) -> Tensor:
        """Add a FLOAT32 weight, rounded to ``element``: f32, f16 or bf16."""
        result = self.add("top.Weight", (), array.shape, element, location)
        self._weights[result.location] = _FLOAT_STORAGE[element](np.ascontiguousarray(array, np.float32))
        return result

    def array(self, tensor: Tensor) -> Array | None:
        """Return the array of a weight, or None for a computed tensor."""
        return self._weights.get(tensor.location)

    def used_lines(self, results: Sequence[Tensor]) -> list[Line]:
        """Return the operations that the results need: the compiler aborts on unused ones."""
        needed = set(results)
        lines = []
        for line in reversed(self.lines):
            if line.result in needed:
                needed.update(operand for operand in line.operands if operand is not None)
                lines.append(line)
        return lines[::-1]

    def used_inputs(self, results: Sequence[Tensor]) -> list[Tensor]:
        """Return the inputs that the results need, or the first one if they need none."""
        needed = {*results, *(operand for line in self.used_lines(results) for operand in line.operands)}
        return [tensor for tensor in self.inputs if tensor in needed] or self.inputs[:1]

    def weights(self, results: Sequence[Tensor]) -> dict[str, Array]:
        """Return the weights that the results need, by location."""
        used = (line.result.location for line in self.used_lines(results) if line.operation == "top.Weight")
        return {location: self._weights[location] for location in used}

    def text(self, results: Sequence[Tensor]) -> str:
        """Return the module that computes and returns the given tensors."""
        lines = self.used_lines(results)
        names: dict[Tensor | None, str] = {None: "%0"}
        locations: list[str] = []
        body = ['    %0 = "top.None"() : () -> none loc(#loc)']

        def write(operation: str, operands: str, types: str, attributes: str, result: Tensor) -> None:
            names[result] = f"%{len(names)}"
            locations.append(result.location)
            body.append(
                f'    {names[result]} = "{operation}"({operands}){attributes} : ({types}) -> {result.type} '
                f"loc(#loc{len(locations)})"
            )

        inputs = self.used_inputs(results)
        for index, tensor in enumerate(inputs):
            write("top.Input", f"%arg{index}", tensor.type, "", tensor)
        for line in lines:
            operands = ", ".join(names[operand] for operand in line.operands)
            types = ", ".join("none" if operand is None else operand.type for operand in line.operands)
            write(line.operation, operands, types, _attribute_text(line), line.result)
        arguments = ", ".join(f"%arg{index}: {tensor.type} loc(unknown)" for index, tensor in enumerate(inputs))
        types = ", ".join(tensor.type for tensor in results)
        attributes = ", ".join(f"{key} = {value}" for key, value in sorted(self.attributes.items()))
        return "\n".join(
            [
                "#loc = loc(unknown)",
                f"module @{self.name} attributes {{{attributes}}} {{",
                f"  func.func @main({arguments}) -> {types if len(results) == 1 else f'({types})'} {{",
                *body,
                f"    return {', '.join(names[tensor] for tensor in results)} : {types} loc(#loc)",
                "  } loc(#loc)",
                "} loc(#loc)",
                *(f"#loc{number} = loc({_string(name)})" for number, name in enumerate(locations, 1)),
                "",
            ]
        )


def _string(text: str) -> str:
    """Return an MLIR string literal. Bytes outside printable ASCII are escaped as two hexadecimal digits."""
    escaped = (
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:02X}" for byte in text.encode("utf-8")
    )
    return f'"{"".join(escaped)}"'


def complete_attributes(operation: str, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of an operation: the given ones, and the defaults of the others that have one."""
    declared = OPERATIONS[operation].attributes
    unknown = attributes.keys() - declared.keys()
    assert not unknown, f"{operation} has no attribute {sorted(unknown)}"
    complete = {name: attributes.get(name, default) for name, (_, default) in sorted(declared.items())}
    missing = [name for name, value in complete.items() if value is REQUIRED]
    assert not missing, f"{operation}: attribute {missing[0]} is missing"
    return {name: value for name, value in complete.items() if value is not None}


def _attribute_text(line: Line) -> str:
    """Return the text of an operation's attribute dictionary."""
    declared = OPERATIONS[line.operation].attributes
    texts = [f"{name} = {_value_text(declared[name][0], value)}" for name, value in line.attributes.items()]
    return f" {{{', '.join(texts)}}}" if texts else ""


def _value_text(kind: str, value: Any) -> str:
    """Return the text of an attribute value. A kind that is not one of the basic kinds is an enumeration."""
    match kind:
        case "bool":
            return "true" if value else "false"
        case "i64" | "si32":
            return f"{int(value)} : {kind}"
        case "f64":
            return f"{_float_text(value)} : f64"
        case "ints":
            return f"[{', '.join(str(int(item)) for item in value)}]"
        case "floats":
            return f"[{', '.join(map(_float_text, value))}]"
        case "string":
            return _string(value)
        case "mode":
            return f"#tpu<mode {value}>"
        case _:
            return f"#tpu<{kind} {value}>"


def _float_text(value: float) -> str:
    """Return the text of a float64 number: the bits of an infinite one."""
    number = np.float64(value)
    return f"{number:.17e}" if np.isfinite(number) else f"0x{number.view(np.uint64):016X}"
