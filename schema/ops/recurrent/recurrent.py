"""Recurrent layers over a sequence: lstm, gru and rnn.

References are evaluated in binary64. The products of the inputs are rounded to float32, and so are the states after
every step.
"""

from __future__ import annotations

import enum
import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, TypeVar

import numpy as np

from tpuconvert.schema.definition.op import Arrays, Extents, Operand, OpKind, Types, op_base, tpu_op
from tpuconvert.schema.definition.shape_checks import check_bias, check_extent, check_ranks, format_types, number
from tpuconvert.schema.errors import ShapeError, UsageError
from tpuconvert.schema.graph.composite import Composite, check_float
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.recurrent.expansion import Cell, expand_layer
from tpuconvert.schema.ops.recurrent.functions import FUNCTIONS
from tpuconvert.schema.types import F32, I32, Array, Shape, TensorType

T = TypeVar("T")


class Direction(enum.IntEnum):
    """Order of the steps: from the first, from the last, or a layer for each order."""

    FORWARD = 0
    REVERSE = 1
    BIDIRECTIONAL = 2

    @property
    def reverse(self) -> tuple[bool, ...]:
        """For each direction, True if it begins with the last step."""
        return {0: (False,), 1: (True,), 2: (False, True)}[int(self)]


_WEIGHTS = (
    Operand("tensor_i", (3,)),
    Operand("weight", (3,), coeff=True),
    Operand("recurrent_weight", (3,), coeff=True),
    Operand("bias", (2,), coeff=True, optional=True),
    Operand("lengths", (1,), coeff=True, optional=True),
    Operand("hidden", (3,), coeff=True, optional=True),
)
_CONTINUES = Operand("continues", (2,), coeff=True, optional=True)
_RESULTS = (Operand("tensor_o", (4,)), Operand("hidden_o", (3,)))


def check_layer(op: SequenceLayer, operands: Types) -> tuple[Shape, Shape]:
    """Check the types of the operands.

    Returns:
        The shapes of y and of a state.

    Raises:
        ShapeError: the types do not fit each other.

    """
    by_name = op.operands_by_name(operands)
    types = tuple(by_name.values())
    x, weight, recurrent_weight, bias = types[:4]
    lengths, peephole, continues = (by_name.get(name) for name in ("lengths", "peephole", "continues"))
    if lengths is not None and lengths.dtype is not I32:
        raise ShapeError(f"{op.name} takes INT32 lengths, got {format_types(types)}")
    check_ranks(op, *types)
    assert x is not None and weight is not None and recurrent_weight is not None
    steps, batch, size = x.shape
    units = number(op, "the number of units", recurrent_weight.shape[2], *types)
    if not units:
        raise ShapeError(f"{op.name} needs at least one unit, got {format_types(types)}")
    rows = op.gates * units
    for name, operand_type, last in (("weight", weight, size), ("recurrent_weight", recurrent_weight, units)):
        check_extent(op, f"the number of directions of {name}", operand_type.shape[0], op.directions, *types)
        check_extent(op, f"the number of rows of {name}", operand_type.shape[1], rows, *types)
        check_extent(op, f"the number of columns of {name}", operand_type.shape[2], last, *types)
    check_bias(op, bias, (op.directions, 2 * rows), *types)
    if lengths is not None:
        check_extent(op, "the number of lengths", lengths.shape[0], batch, *types)
    for name in ("hidden", "cell"):
        state = by_name.get(name)
        for index, expected in enumerate((op.directions, batch, units) if state is not None else ()):
            assert state is not None
            check_extent(op, f"extent {index} of {name}", state.shape[index], expected, *types)
    if peephole is not None:
        check_extent(op, "the number of directions of peephole", peephole.shape[0], op.directions, *types)
        check_extent(op, "the number of columns of peephole", peephole.shape[1], 3 * units, *types)
    if continues is not None:
        check_extent(op, "the number of steps of continues", continues.shape[0], steps, *types)
        check_extent(op, "the batch of continues", continues.shape[1], batch, *types)
    return (steps, op.directions, batch, units), (op.directions, batch, units)


@op_base
class SequenceLayer(Composite):
    """Base of float and integer recurrent layers: direction, number of MACs, and the check of the lengths."""

    direction: Direction = Direction.FORWARD

    outputs: ClassVar[tuple[Operand, ...]] = _RESULTS
    gates: ClassVar[int] = 1
    states: ClassVar[int] = 1
    decides_by = ("lengths",)

    def __post_init__(self) -> None:
        object.__setattr__(self, "direction", Direction(self.direction))

    @property
    def directions(self) -> int:
        """Number of directions, D."""
        return len(self.direction.reverse)

    def operands_by_name(self, operands: Sequence[T | None]) -> dict[str, T | None]:
        """Return the operands of a node, or their types or arrays, by the names of ``inputs``; None for absent ones."""
        padded = [*operands, *[None] * (len(self.inputs) - len(operands))]
        return {operand.name: item for operand, item in zip(self.inputs, padded, strict=True)}

    def count_macs(self, operands: Sequence[Extents], results: Sequence[Extents]) -> int:
        """MACs of two matmuls per step: of the input and of the state."""
        steps, batch = operands[0][:2]
        return steps * batch * (math.prod(operands[1]) + math.prod(operands[2]))

    def check_values(self, types: Types, arrays: Arrays) -> None:
        """Check the lengths of the sequences.

        Raises:
            UsageError: a length is negative or above the number of steps.

        """
        lengths, x = arrays[4] if len(arrays) > 4 else None, types[0]
        steps = None if x is None else x.shape[0]
        if lengths is None or not lengths.size or not isinstance(steps, int):
            return
        if lengths.min() < 0 or lengths.max() > steps:
            raise UsageError(f"{self.name}: lengths are {lengths.tolist()}, expected 0 to {steps}")

    def shorter_types(self, *inputs: TensorType | None) -> tuple[TensorType | None, ...]:
        """Two steps: their expansion contains the operators of every further step."""
        x = inputs[0]
        assert x is not None
        steps = x.shape[0]
        count = min(steps, 2) if isinstance(steps, int) else 2

        def shorten(operand: Operand, type_: TensorType | None) -> TensorType | None:
            has_steps = type_ is not None and operand.name in ("tensor_i", "continues")
            return TensorType(type_.dtype, (count, *type_.shape[1:])) if type_ is not None and has_steps else type_

        return tuple(map(shorten, self.inputs, inputs))


@op_base
class RecurrentLayer(SequenceLayer):
    """Base of lstm, gru and rnn: operands, shapes, and the loop over the steps.

    Attributes:
        integer_functions: activation functions of a direction for which the layer has an integer form.
    """

    activations: tuple[str, ...] = ()
    alphas: tuple[float, ...] = ()
    betas: tuple[float, ...] = ()
    clip: float = 0.0

    inputs: ClassVar[tuple[Operand, ...]] = (*_WEIGHTS, _CONTINUES)
    default_activations: ClassVar[tuple[str, ...]] = ()
    integer_functions: ClassVar[tuple[tuple[str, ...], ...]] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        names = self.activations or self.default_activations * self.directions
        count = len(self.default_activations) * self.directions
        if len(names) != count or any(name not in FUNCTIONS for name in names):
            raise ValueError(f"{self.name}: activations are {names}, expected {count} of {', '.join(FUNCTIONS)}")
        object.__setattr__(self, "activations", tuple(names))
        for field, default in (("alphas", 0), ("betas", 1)):
            parameters = getattr(self, field) or [FUNCTIONS[name][default] or 0.0 for name in names]
            if len(parameters) != count:
                raise ValueError(f"{self.name}: {len(parameters)} {field}, expected {count}")
            object.__setattr__(self, field, tuple(float(np.float32(item)) for item in parameters))
        if not self.clip >= 0:
            raise ValueError(f"{self.name}: clip is {self.clip}, expected at least 0")

    def functions_of(self, direction: int) -> list[tuple[str, float, float]]:
        """Activation functions of one direction: names with both parameters."""
        count = len(self.default_activations)
        part = slice(count * direction, count * (direction + 1))
        return list(zip(self.activations[part], self.alphas[part], self.betas[part], strict=True))

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        check_float(self, *(item for name, item in self.operands_by_name(types).items() if name != "lengths"))
        sequence, state = check_layer(self, types)
        return (TensorType(F32, sequence), *[TensorType(F32, state)] * self.states)

    def reference(self, *operands: Array | None) -> tuple[Array, ...]:
        """Return the outputs of all steps, which are 0 after the end of a sequence, and the last states."""
        by_name = self.operands_by_name(operands)
        x, weight, recurrent_weight, bias = list(by_name.values())[:4]
        assert x is not None and weight is not None and recurrent_weight is not None
        lengths, peephole, continues = (by_name.get(name) for name in ("lengths", "peephole", "continues"))
        (steps, batch, size), units = x.shape, recurrent_weight.shape[2]
        y = np.zeros((steps, self.directions, batch, units), np.float32)
        last = [np.zeros((self.directions, batch, units), np.float32) for _ in range(self.states)]
        recorded = self.cells_of(y.shape)
        for direction, is_reverse in enumerate(self.direction.reverse):
            wide = [None if item is None else item[direction].astype(np.float64) for item in (bias, peephole)]
            w, r = weight[direction].astype(np.float64), recurrent_weight[direction].astype(np.float64)
            for state, name in zip(last, ("hidden", "cell"), strict=False):
                initial = by_name[name]
                if initial is not None:
                    state[direction] = initial[direction]
            with np.errstate(all="ignore"):
                inputs = np.matmul(x.reshape(-1, size).astype(np.float64), w.T).astype(np.float32)
                inputs = inputs.reshape(steps, batch, len(w))
                for step in reversed(range(steps)) if is_reverse else range(steps):
                    if continues is not None:
                        for state in last:
                            state[direction] *= continues[step][:, None]
                    old = [state[direction].astype(np.float64) for state in last]
                    new = [item.astype(np.float32) for item in self.step(direction, inputs[step], old, r, *wide)]
                    is_inside = np.ones((batch, 1), bool) if lengths is None else (step < lengths)[:, None]
                    for state, item in zip(last, new, strict=True):
                        state[direction] = np.where(is_inside, item, state[direction])
                    y[step, direction] = np.where(is_inside, new[0], 0)
                    if recorded is not None:
                        recorded[step, direction] = last[1][direction]
        return (y, *last) if recorded is None else (y, *last, recorded)

    def cells_of(self, shape: tuple[int, ...]) -> Array | None:
        """Return an array for the cells of all steps if they are a result, else None."""
        return None

    @abstractmethod
    def step(
        self, direction: int, inputs: Array, states: list[Array], r: Array, bias: Array | None, peephole: Array | None
    ) -> list[Array]:
        """Compute one step in binary64: the next states from ``inputs`` (``x @ weight^T``) and the states before."""

    @abstractmethod
    def cell(self, direction: int) -> Cell:
        """Return the expansion of one step."""

    def activate(self, direction: int, index: int, x: Array) -> Array:
        """Clip a sum and apply an activation function."""
        name, alpha, beta = self.functions_of(direction)[index]
        if self.clip:
            x = np.clip(x, -self.clip, self.clip)
        return FUNCTIONS[name].evaluate(x, alpha, beta)

    def expand(self, g: Graph, *operands: Value | None) -> tuple[Value, ...]:
        """Unroll the layer: one matmul for the inputs of all steps, and the operators of a cell per step."""
        by_name = self.operands_by_name(operands)
        recorded = self.cells_of((0,)) is not None
        return expand_layer(self.name, g, by_name, self.direction.reverse, self.states, self.cell, gives_cells=recorded)


def _split(x: Array, gates: int) -> list[Array]:
    return np.split(x, gates, axis=-1)


def _bias_sums(bias: Array | None, columns: int) -> tuple[Array, Array]:
    if bias is None:
        return np.zeros(columns), np.zeros(columns)
    return bias[:columns], bias[columns:]


@tpu_op("lstm", OpKind.COMPOSITE)
class Lstm(RecurrentLayer):
    """LSTM layer: ``cell' = f * cell + i * g(c); hidden' = o * h(cell')`` per step, with the gates i, o, f.

    The sums ``x @ weight^T + hidden @ recurrent_weight^T + bias`` have the order i, o, f, c. ``peephole`` (order i, o,
    f) times the cell is added to the sums of the gates; o reads the new cell. ``activations`` are the functions of
    the gates, g and h, for each direction; ``alphas`` and ``betas`` are their parameters. A sum is clipped to ``clip``,
    and a cell to ``cell_clip``; 0 means no limit. With ``input_forget``, f = 1 - i. With ``cell_steps`` there is a
    further result, which calibration measures: the cells after every step. After the end of a sequence (``lengths``)
    the states do not change and y is 0. Before a step, the states are multiplied by ``continues``, which is 0 where a
    sequence starts.

    Shapes: x [T, N, I], weight [D, 4H, I], recurrent_weight [D, 4H, H], bias [D, 8H], lengths [N], hidden and cell
    [D, N, H], peephole [D, 3H], continues [T, N]; y and cells [T, D, N, H], states [D, N, H]; D is the number of
    directions.
    Errors: UsageError for lengths outside of 0..T.
    Source: ONNX LSTM-22.
    """

    input_forget: bool = False
    cell_clip: float = 0.0
    cell_steps: bool = False

    inputs = (*_WEIGHTS, Operand("cell", (3,), coeff=True, optional=True),
              Operand("peephole", (2,), coeff=True, optional=True), _CONTINUES)  # fmt: skip
    outputs = (*_RESULTS, Operand("cell_o", (3,)), Operand("cells_o", (4,), optional=True))
    gates = 4
    states = 2
    default_activations = ("sigmoid", "tanh", "tanh")
    integer_functions = (default_activations,)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.cell_clip >= 0:
            raise ValueError(f"{self.name}: cell_clip is {self.cell_clip}, expected at least 0")

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        result_types = super().infer(*types)
        return (*result_types, result_types[0]) if self.cell_steps else result_types

    def cells_of(self, shape: tuple[int, ...]) -> Array | None:
        return np.zeros(shape, np.float32) if self.cell_steps else None

    def step(
        self, direction: int, inputs: Array, states: list[Array], r: Array, bias: Array | None, peephole: Array | None
    ) -> list[Array]:
        hidden, cell = states
        sums = inputs + hidden @ r.T + sum(_bias_sums(bias, r.shape[0]))
        enter, leave, forget, candidate = _split(sums, 4)
        p = np.zeros((3, hidden.shape[1])) if peephole is None else peephole.reshape(3, -1)
        enter = self.activate(direction, 0, enter + p[0] * cell)
        forget = 1 - enter if self.input_forget else self.activate(direction, 0, forget + p[2] * cell)
        cell = forget * cell + enter * self.activate(direction, 1, candidate)
        if self.cell_clip:
            cell = np.clip(cell, -self.cell_clip, self.cell_clip)
        name, alpha, beta = self.functions_of(direction)[2]
        leave = self.activate(direction, 0, leave + p[1] * cell)
        return [leave * FUNCTIONS[name].evaluate(cell, alpha, beta), cell]

    def cell(self, direction: int) -> Cell:
        return Cell.lstm(self.functions_of(direction), self.clip, self.input_forget, self.cell_clip)


@tpu_op("gru", OpKind.COMPOSITE)
class Gru(RecurrentLayer):
    """GRU layer: ``hidden' = (1 - z) * g(h) + z * hidden`` per step, with the update gate z and the reset gate r.

    The sums have the order z, r, h. The arguments of z and r are ``x @ weight^T + hidden @ recurrent_weight^T + bias``;
    the argument of h has ``(r * hidden) @ recurrent_weight^T``, or with ``linear_before_reset`` ``r * (hidden @
    recurrent_weight^T + recurrent bias)``. ``bias`` consists of the biases of both matmuls. ``activations`` are the
    functions of the gates, and g, for each direction; ``alphas`` and ``betas`` are their parameters. A sum is clipped
    to ``clip``; 0 means no limit. After the end of a sequence (``lengths``) the state does not change and y is 0.
    Before a step, the state is multiplied by ``continues``, which is 0 where a sequence starts.

    Shapes: x [T, N, I], weight [D, 3H, I], recurrent_weight [D, 3H, H], bias [D, 6H], lengths [N], hidden [D, N, H],
    continues [T, N];
    y [T, D, N, H], state [D, N, H]; D is the number of directions.
    Errors: UsageError for lengths outside of 0..T.
    Source: ONNX GRU-22.
    """

    linear_before_reset: bool = False

    gates = 3
    default_activations = ("sigmoid", "tanh")
    integer_functions = (default_activations,)

    def step(
        self, direction: int, inputs: Array, states: list[Array], r: Array, bias: Array | None, peephole: Array | None
    ) -> list[Array]:
        (hidden,) = states
        units = hidden.shape[1]
        gates = 2 * units
        input_bias, recurrent_bias = _bias_sums(bias, r.shape[0])
        sums = inputs + input_bias
        both = sums[:, :gates] + hidden @ r[:gates].T + recurrent_bias[:gates]
        update, reset = (self.activate(direction, 0, part) for part in _split(both, 2))
        if self.linear_before_reset:
            recurrent = reset * (hidden @ r[gates:].T + recurrent_bias[gates:])
        else:
            recurrent = (reset * hidden) @ r[gates:].T + recurrent_bias[gates:]
        candidate = self.activate(direction, 1, sums[:, gates:] + recurrent)
        return [(1 - update) * candidate + update * hidden]

    def cell(self, direction: int) -> Cell:
        return Cell.gru(self.functions_of(direction), self.clip, self.linear_before_reset)


@tpu_op("rnn", OpKind.COMPOSITE)
class Rnn(RecurrentLayer):
    """Elman layer: ``hidden' = f(x @ weight^T + hidden @ recurrent_weight^T + bias)`` per step.

    ``activations`` has f for each direction; ``alphas`` and ``betas`` are its parameters. A sum is clipped to ``clip``;
    0 means no limit. After the end of a sequence (``lengths``) the state does not change and y is 0. Before a step, the
    state is multiplied by ``continues``, which is 0 where a sequence starts.

    Shapes: x [T, N, I], weight [D, H, I], recurrent_weight [D, H, H], bias [D, 2H], lengths [N], hidden [D, N, H],
    continues [T, N];
    y [T, D, N, H], state [D, N, H]; D is the number of directions.
    Errors: UsageError for lengths outside of 0..T.
    Source: ONNX RNN-22.
    """

    gates = 1
    default_activations = ("tanh",)
    integer_functions = (("tanh",), ("sigmoid",))

    def step(
        self, direction: int, inputs: Array, states: list[Array], r: Array, bias: Array | None, peephole: Array | None
    ) -> list[Array]:
        return [self.activate(direction, 0, inputs + states[0] @ r.T + sum(_bias_sums(bias, r.shape[0])))]

    def cell(self, direction: int) -> Cell:
        return Cell.rnn(self.functions_of(direction), self.clip)
