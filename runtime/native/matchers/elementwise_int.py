"""Integer element-wise operators, such as requantized adds, lookup tables and casts: a tree of them is one step.

The leaves of a tree are values with several uses and 8-bit values, which are stored between steps.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch

import numpy as np

from tpuconvert.runtime.native.builder.builder import Group
from tpuconvert.runtime.native.matchers.element_step import emit_elements
from tpuconvert.runtime.native.matchers.elements import (
    ELEMENT_TYPES,
    Elements,
    Term,
    Unsupported,
    through_binary32_is_exact,
)
from tpuconvert.runtime.native.matchers.epilogue import EPILOGUE_OPS
from tpuconvert.runtime.native.matchers.linear_int import LINEAR_OPS
from tpuconvert.runtime.native.matchers.linear_int16 import linear_int16
from tpuconvert.runtime.native.matchers.matcher import Site, ends_with, names_of, operators_of
from tpuconvert.runtime.native.matchers.wide_tables import match_wide_look_up
from tpuconvert.schema.arithmetic.elementwise import Arithmetic
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.activation import Active, ActiveParam, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, BinaryArithmetic, Max, Min, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Maxs, Mins, Muls, Rsubs, ScalarArithmetic, Subs
from tpuconvert.schema.ops.bit_logic import BitAnds
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.quantization.dequant_int_to_fp32 import DequantIntToFp32
from tpuconvert.schema.ops.quantization.lut import Lut
from tpuconvert.schema.ops.quantization.requant_fp32_to_int import RequantFp32Mode, RequantFp32ToInt
from tpuconvert.schema.ops.quantization.requant_int32 import RequantInt32, RequantMode
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.ops.shifts.arithmetic_shift import ArithmeticShift
from tpuconvert.schema.ops.shifts.shift_arithmetic import (
    AddShift,
    AddsShift,
    MulShift,
    MulsShift,
    OfTensors,
    RsubsShift,
    SubShift,
    SubsShift,
)
from tpuconvert.schema.types import F32, I16, I32, Array, Chip, DType, Scalar

_SMALL_OFFSET = 2**30


class Tree:
    """A tree under construction: its nodes and the instructions that compute them."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.elements = Elements()
        self.nodes: list[Node] = []
        self.is_tail = True
        """True as long as all nodes of the tree are unary."""

    @property
    def is_exact_int32(self) -> bool:
        """Return True if the chip computes INT32 exactly; older chips convert it to float32."""
        return self.site.chip == Chip.BM1686.value

    def of(self, value: Value | None) -> Term:
        """Return the term of a value: an intermediate result if its producer can be absorbed, else an operand."""
        assert value is not None
        producer = self._absorbed(value)
        return self.elements.operand(value) if producer is None else self.term(producer)

    def _absorbed(self, value: Value) -> Node | None:
        """Return the producer of a value if the step computes it, else None."""
        if value.dtype.is_float:
            producer = _float_producer(value, self.site)
            return producer if producer is not None and _comes_from_integers(producer, self.site) else None
        producer = self.site.absorbable(value, *_KINDS)
        if producer is None or (isinstance(producer.op, Reshape) and match_wide_look_up(producer, self.site) is None):
            return None
        if value.dtype is I16 and _belongs_to_linear(producer, self.site):
            return None
        if value.dtype.bits == 8 and not (self._leads_to_binary(producer) or _requantizes_stored_sums(producer)):
            return None
        return producer

    def _leads_to_binary(self, node: Node) -> bool:
        """Return True if a binary operator, then unary ones, compute the result: their bytes need not be stored.

        Unary operators after a linear operator belong to its epilogue instead.
        """
        while self.is_tail and not _takes_pair(node.op):
            producer = self.site.absorbable(node.inputs[0], *_KINDS)
            if producer is None:
                return False
            node = producer
        return self.is_tail

    def term(self, node: Node) -> Term:
        """Return the term of a node.

        Raises:
            Unsupported: if there are no instructions for it.
        """
        if node.outputs[0].dtype not in ELEMENT_TYPES:
            raise Unsupported(f"{node.outputs[0].dtype} is not supported by the kernel")
        self.is_tail = self.is_tail and not _takes_pair(node.op)
        term = _term(node.op, self, node)
        self.nodes.append(node)
        return term


def _takes_pair(op: Op) -> bool:
    return isinstance(op, (BinaryArithmetic, OfTensors))


def _belongs_to_linear(node: Node, site: Site) -> bool:
    """Return True if a linear operator computes 16-bit results in its epilogue, with one requantization."""
    if linear_int16(node, site) is not None:
        return True
    requantizations = 0
    while isinstance(node.op, EPILOGUE_OPS):
        requantizations += isinstance(node.op, RequantInt32)
        producer = site.absorbable(node.inputs[0], *EPILOGUE_OPS, *LINEAR_OPS)
        if producer is None or requantizations > 1:
            return False
        node = producer
    return requantizations == 1


def _requantizes_stored_sums(node: Node, depth: int = 2) -> bool:
    """Return True if bytes are requantized from 32-bit values with other users, or are the max or min of such bytes."""
    producers = [value.producer for value in node.inputs if value is not None and value.producer is not None]
    if depth and isinstance(node.op, (Max, Min)) and len(producers) == 2:
        return all(_requantizes_stored_sums(producer, depth - 1) for producer in producers)
    x = node.inputs[0]
    return isinstance(node.op, RequantInt32) and x is not None and x.dtype is I32 and len(x.uses) > 1


def tree(node: Node, site: Site) -> Group | None:
    """Match the largest tree of element-wise operators that ends with a node, or the node alone."""
    y = node.outputs[0]
    if y.dtype not in ELEMENT_TYPES:
        return None
    for is_alone in (False, True):
        tree_terms = Tree(site.alone if is_alone else site)
        try:
            term = tree_terms.term(node)
        except Unsupported:
            continue
        if term.dtype is not y.dtype or all(value.is_constant for value in tree_terms.elements.operands):
            return None
        return Group(tuple(tree_terms.nodes), lambda builder: emit_elements(tree_terms.elements, builder, term, y))  # noqa: B023  the loop ends here
    return None


# Terms of the operators


@singledispatch
def _term(op: Op, tree: Tree, node: Node) -> Term:
    raise Unsupported(op.name)


def _require_integers(node: Node) -> None:
    if any(value is not None and value.dtype.is_float for value in node.inputs):
        raise Unsupported("float operands, which the reference accepts")


def _reference(op: Op, chip: str) -> Callable[[Array], Array]:
    def evaluate(x: Array) -> Array:
        (result,) = op.evaluate(x, chip=Chip(chip))
        return result

    return evaluate


def _unary(tree: Tree, node: Node) -> tuple[Term, Term | None]:
    """Return the operand's term, and the result's term if the operator can be a lookup table."""
    x = tree.of(node.inputs[0])
    if x.dtype is F32:
        return x, None
    return x, tree.elements.function(x, node.outputs[0].dtype, _reference(node.op, tree.site.chip))


@_term.register
def _requant_int32(op: RequantInt32, tree: Tree, node: Node) -> Term:
    _require_integers(node)
    x = tree.of(node.inputs[0])
    table_term = None
    if not op.is_mul_shift_pc and not op.is_offset_pc and x.values is not None:
        table_term = tree.elements.function(x, node.outputs[0].dtype, _reference(op, tree.site.chip))
    return table_term or tree.elements.rescale(x, op)


@_term.register
def _wide_look_up(_: Reshape, tree: Tree, node: Node) -> Term:
    """The last node of a lookup in a table with more than 256 entries; other reshapes are not supported."""
    look_up = match_wide_look_up(node, tree.site)
    if look_up is None:
        raise Unsupported("no lookup")
    x = tree.of(look_up.positions)
    if x.low < 0 or x.high >= look_up.entries.size:
        raise Unsupported("positions beyond the table, which the reference refuses")
    tree.nodes += look_up.nodes[:-1]
    register = tree.elements.add("gather", tree.elements.value_of(x), table=look_up.entries)
    return tree.elements.integer(
        register, node.outputs[0].dtype, int(look_up.entries.min()), int(look_up.entries.max())
    )


@_term.register
def _arithmetic_shift(op: ArithmeticShift, tree: Tree, node: Node) -> Term:
    """Lower to ``requant_int32`` with multiplier 1 and one rounding."""
    _require_integers(node)
    x, table_term = _unary(tree, node)
    if table_term is not None:
        return table_term
    mode, out = RequantMode.MULTIPLIER_SHIFT, node.outputs[0].dtype
    rescale = RequantInt32(shift_val=op.shift, mode=mode, round_mode=op.rounding_mode, out_dtype=out)
    return tree.elements.rescale(x, rescale)


@_term.register
def _bit_ands(op: BitAnds, tree: Tree, node: Node) -> Term:
    """Bitwise and with a constant, in two's complement."""
    _require_integers(node)
    x, table_term = _unary(tree, node)
    if table_term is not None:
        return table_term
    if x.dtype is F32 or op.scalar_i.dtype is not x.dtype:
        raise Unsupported("patterns of another width")
    bits = int(op.scalar_i.value)
    low, high = (0, bits) if bits >= 0 else (x.dtype.min, x.dtype.max)
    register = tree.elements.add("and_parameter", tree.elements.value_of(x), parameters=[[bits]])
    return tree.elements.integer(register, x.dtype, low, high)


@_term.register
def _requant_fp32(op: RequantFp32ToInt, tree: Tree, node: Node) -> Term:
    elements = tree.elements
    out = node.outputs[0].dtype
    is_per_channel = op.is_scale_pc or op.is_offset_pc
    x = tree.of(node.inputs[0])
    table_term = None if is_per_channel or x.dtype is F32 else elements.function(x, out, _reference(op, tree.site.chip))
    if table_term is not None:
        return table_term
    scale = [float(value) for value in (op.scale_vec if op.is_scale_pc else (op.scale_val,))]
    value = elements.value_of(x) if x.dtype is F32 else elements.add("to_float", elements.value_of(x))
    scaled = elements.multiply_float(value, scale)
    if op.mode is RequantFp32Mode.SCALE_OFFSET_ROUND:
        offsets = [float(value) for value in (op.offset_fp_vec if op.is_offset_pc else (op.offset_fp_val,))]
        return elements.round_to_integer(elements.add("float_add_parameter", scaled, parameters=[offsets]), out)
    integers = op.offset_vec if op.is_offset_pc else (op.offset_val,)
    if max(map(abs, integers)) >= _SMALL_OFFSET or out.bits > 16:
        raise Unsupported("an offset or a result is too large")
    # Results beyond these bounds are saturated for every allowed offset.
    far = 2**31 - 1 - _SMALL_OFFSET
    near = elements.round_to_integer(scaled, I32, -far, far)
    if integers == (0,):
        return elements.limit(near, out)
    low, high = near.low + min(integers), near.high + max(integers)
    return elements.result("add_parameter", out, low, high, elements.value_of(near), parameters=[integers])


@_term.register
def _dequant(op: DequantIntToFp32, tree: Tree, node: Node) -> Term:
    _require_integers(node)
    elements = tree.elements
    x = tree.of(node.inputs[0])
    offsets = op.offset_vec if op.is_offset_pc else (op.offset_val,)
    low, high = x.low - max(offsets), x.high - min(offsets)
    if low <= -(2**31) or high >= 2**31:
        raise Unsupported("a difference may overflow 32 bits")
    is_linear = elements.linear(x) is not None
    if not is_linear and not (op.is_scale_pc or op.is_offset_pc):
        table_term = elements.function(x, F32, _reference(op, tree.site.chip))
        if table_term is not None:
            return table_term
    if x.values is not None and is_linear and len(offsets) == 1:
        values = x.values - offsets[0]
        difference = elements.value_of(Term(I32, low, high, operand=x.operand, values=values))
    else:
        difference = elements.value_of(x)
        if offsets != (0,):
            difference = elements.add("add_parameter", difference, parameters=[[-value for value in offsets]])
    scales = [float(value) for value in (op.scale_vec if op.is_scale_pc else (op.scale_val,))]
    return elements.float_term(elements.multiply_float(elements.add("to_float", difference), scales))


@_term.register
def _cast(op: Cast, tree: Tree, node: Node) -> Term:
    elements, out = tree.elements, node.outputs[0].dtype
    x = tree.of(node.inputs[0])
    if x.dtype is F32:
        if out.is_float or (not out.is_signed and out.bits == 32):
            raise Unsupported(f"cast to {out}")
        return elements.round_to_integer(elements.value_of(x), out)
    if out is F32:
        return elements.float_term(elements.add("to_float", elements.value_of(x)))
    if out not in ELEMENT_TYPES:
        raise Unsupported(f"cast to {out}")
    return elements.limit(x, out)


@_term.register
def _lut(op: Lut, tree: Tree, node: Node) -> Term:
    table = node.inputs[1]
    if table is None or not table.is_constant:
        raise Unsupported("a table computed at run time")
    entries = table.array.reshape(-1)
    x = tree.of(node.inputs[0])
    table_term = tree.elements.function(x, node.outputs[0].dtype, lambda values: entries[values.view(np.uint8)])
    if table_term is None:
        raise Unsupported("a table of more than bytes")
    return table_term


@_term.register
def _clamp(op: Clamp, tree: Tree, node: Node) -> Term:
    x = tree.of(node.inputs[0])
    if x.dtype is F32 or not (x.dtype.holds(op.min.value) and x.dtype.holds(op.max.value)):
        raise Unsupported("limits outside of the type")
    low, high = int(op.min.value), int(op.max.value)
    # Every chip computes the clamp of INT32 in float32.
    if x.dtype is I32 and not through_binary32_is_exact(x, Term(I32, low, high)):
        raise Unsupported("INT32 is rounded to binary32")
    return tree.elements.limit(x, x.dtype, low, high)


@_term.register
def _activation(op: Active | ActiveParam, tree: Tree, node: Node) -> Term:
    elements, out = tree.elements, node.outputs[0].dtype
    x = tree.of(node.inputs[0])
    if x.dtype is F32:
        raise Unsupported("a function of floats")
    if op.active_type is ActiveType.ACTIVE_RELU:
        return elements.limit(elements.limit(x, I32, 0, 2**31 - 1), out)
    table_term = elements.function(x, out, _reference(op, tree.site.chip))
    if table_term is not None:
        return table_term
    value = elements.value_of(x)
    if op.active_type is ActiveType.ACTIVE_ABSVAL:
        low, high = max(x.low, -x.high, 0), max(abs(x.low), abs(x.high))
        return elements.result("absolute", out, low, high, value)
    if op.active_type is not ActiveType.ACTIVE_LEAKY_RELU or x.dtype.bits > 16:
        raise Unsupported("a function without instructions")
    slope = float(op.params[0]) if isinstance(op, ActiveParam) and op.params else 0.0
    far = 2**31 - 1
    rounded = elements.add("from_float", elements.multiply_float(elements.add("to_float", value), [slope]))
    return elements.result("choose_by_sign", out, -far, far, value, rounded)


def _arithmetic(tree: Tree, arithmetic: Arithmetic, a: Term, b: Term, out: DType) -> Term:
    elements = tree.elements
    if F32 in (a.dtype, b.dtype) or not out.is_integer:
        raise Unsupported("float operands")
    if out is I32 and not tree.is_exact_int32:
        return _through_binary32(tree, arithmetic, a, b)
    if arithmetic not in (Arithmetic.MAX, Arithmetic.MIN):
        return _exact_arithmetic(elements, arithmetic, a, b, out)
    choose = max if arithmetic is Arithmetic.MAX else min
    name = "maximum" if arithmetic is Arithmetic.MAX else "minimum"
    low, high = choose(a.low, b.low), choose(a.high, b.high)
    return elements.integer(elements.add(name, elements.value_of(a), elements.value_of(b)), out, low, high)


def _exact_arithmetic(elements: Elements, arithmetic: Arithmetic, a: Term, b: Term, out: DType) -> Term:
    """Add, subtract or multiply two terms, and saturate to a type."""
    if arithmetic is Arithmetic.MUL:
        return elements.product(a, b, out)
    return elements.sum(a, b, 1 if arithmetic is Arithmetic.ADD else -1, out)


def _through_binary32(tree: Tree, arithmetic: Arithmetic, a: Term, b: Term) -> Term:
    elements = tree.elements
    names = {Arithmetic.ADD: "float_add", Arithmetic.SUB: "float_subtract", Arithmetic.MUL: "float_multiply"}
    if arithmetic not in names:
        raise Unsupported("max or min through float32")
    operands = [elements.add("to_float", elements.value_of(term)) for term in (a, b)]
    return elements.round_to_integer(elements.add(names[arithmetic], *operands))


@_term.register
def _binary(op: Add | Sub | Mul | Max | Min, tree: Tree, node: Node) -> Term:
    if node.outputs[0].dtype.is_float:
        raise Unsupported("float operands")
    a, b = (tree.of(value) for value in node.inputs)
    return _arithmetic(tree, op.arithmetic, a, b, node.outputs[0].dtype)


@_term.register
def _scalar(op: Adds | Subs | Rsubs | Muls | Maxs | Mins, tree: Tree, node: Node) -> Term:
    x, table_term = _unary(tree, node)
    if table_term is not None:
        return table_term
    if x.dtype is F32:
        if not _comes_from_integers(node, tree.site):
            raise Unsupported("floats only")
        return _float_with_scalar(tree, op, x)
    if op.scalar.dtype.is_float:
        raise Unsupported("an integer and a float scalar")
    number = int(op.scalar.value)
    out = node.outputs[0].dtype
    if out is I32 and not tree.is_exact_int32:
        raise Unsupported("INT32 is rounded to binary32")
    if op.arithmetic in (Arithmetic.MAX, Arithmetic.MIN):
        limits = (number, 2**31 - 1) if op.arithmetic is Arithmetic.MAX else (-(2**31), number)
        return tree.elements.limit(tree.elements.limit(x, I32, *limits), out)
    if out is I32 and op.arithmetic is Arithmetic.MUL and max(-x.low, x.high) * abs(number) > I32.max >= abs(number):
        # Requantization saturates results of more than 32 bits.
        return tree.elements.rescale(
            x, RequantInt32(multiplier_val=number, mode=RequantMode.MULTIPLIER_SHIFT, out_dtype=I32)
        )
    return _arithmetic_with_scalar(tree, op.arithmetic, x, number, out, is_first=op.scalar_first)


def _float_producer(value: Value | None, site: Site) -> Node | None:
    return site.absorbable(value, DequantIntToFp32, Cast, ScalarArithmetic)


_OF_FLOAT_CHAINS = (Arithmetic.ADD, Arithmetic.SUB, Arithmetic.MUL)


def _comes_from_integers(node: Node, site: Site) -> bool:
    """Return True if a chain of float scalar operators starts with a conversion from integers."""
    while isinstance(node.op, ScalarArithmetic) and node.op.arithmetic in _OF_FLOAT_CHAINS:
        producer = _float_producer(node.inputs[0], site)
        if producer is None:
            return False
        node = producer
    x = node.inputs[0]
    return isinstance(node.op, (DequantIntToFp32, Cast)) and x is not None and x.dtype.is_integer


def _float_with_scalar(tree: Tree, op: ScalarArithmetic, x: Term) -> Term:
    """Apply a float scalar; ``x - c`` becomes ``x + (-c)``, which is equal."""
    elements, number = tree.elements, float(op.scalar.value)
    if op.arithmetic is Arithmetic.MUL:
        return elements.float_term(elements.multiply_float(elements.value_of(x), [number]))
    value = elements.value_of(x)
    if op.scalar_first and op.arithmetic is Arithmetic.SUB:
        value = elements.multiply_float(value, [-1.0])
    elif op.arithmetic is Arithmetic.SUB:
        number = -number
    elif op.arithmetic is not Arithmetic.ADD:
        raise Unsupported("max or min of floats")
    return elements.float_term(elements.add("float_add_parameter", value, parameters=[[number]]))


def _arithmetic_with_scalar(
    tree: Tree, arithmetic: Arithmetic, x: Term, number: int, out: DType, *, is_first: bool
) -> Term:
    """Apply an integer scalar to a term, and saturate to a type."""
    elements = tree.elements
    factor = number if arithmetic is Arithmetic.MUL else -1 if is_first and arithmetic is Arithmetic.SUB else 1
    offset = {Arithmetic.ADD: number, Arithmetic.SUB: number if is_first else -number, Arithmetic.MUL: 0}[arithmetic]
    value, low, high = elements.value_of(x), x.low, x.high
    if factor != 1:
        low, high = sorted((low * factor, high * factor))
        scaled = elements.result("multiply_parameter", I32, low, high, value, parameters=[[factor]])
        value = elements.value_of(scaled)
        if offset == 0:
            return elements.integer(value, out, low, high)
    low, high = low + offset, high + offset
    if low < I32.min or high > I32.max:
        register = elements.add("add_limited_parameter", value, parameters=[[offset]])
        return elements.integer(register, out, max(low, I32.min), min(high, I32.max))
    return elements.integer(elements.add("add_parameter", value, parameters=[[offset]]), out, low, high)


@_term.register
def _shift_binary(op: AddShift | SubShift | MulShift, tree: Tree, node: Node) -> Term:
    _require_integers(node)
    a, b = (tree.of(value) for value in node.inputs)
    exact = _exact_arithmetic(tree.elements, op.arithmetic, a, b, I32)
    return tree.elements.shift_right(exact, op.shift, node.outputs[0].dtype)


@_term.register
def _shift_scalar(op: AddsShift | SubsShift | RsubsShift | MulsShift, tree: Tree, node: Node) -> Term:
    _require_integers(node)
    x, table_term = _unary(tree, node)
    if table_term is not None:
        return table_term
    number: Scalar = op.scalar
    exact = _arithmetic_with_scalar(tree, op.arithmetic, x, int(number.value), I32, is_first=op.scalar_first)
    return tree.elements.shift_right(exact, op.shift, node.outputs[0].dtype)


_KINDS = operators_of(_term)


ends_with(
    *names_of(*_KINDS),
    kernels=("elementwise_int", "look_up"),
    dtypes="INT8 to INT32, UINT8, UINT16, FLOAT32 next to integers",
    conditions=(
        "a tree of operators whose ranges prove that nothing overflows 32 bits; look_up for a function of one byte"
    ),
    priority=1,
)(tree)
