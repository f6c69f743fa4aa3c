"""TFLite models that keep state between runs, each with the contents of its states before the first run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.support.tflite.models import O, S, Signature, T, serialize

TYPES = ("FLOAT32", "FLOAT16", "INT8", "UINT8", "INT16", "INT32", "INT64", "BOOL")
QUANTIZED = ("INT8", "UINT8", "INT16")


@dataclass(frozen=True)
class Streaming:
    """A model with state.

    Args:
        name: name of the case.
        model: the file.
        start: contents of the states before the first run, in the order of the inputs.
        atol: largest difference from LiteRT.
        problem: pattern of the message if the state cannot be passed from run to run.
        signature: the signature to convert, of several.

    """

    name: str
    model: bytes
    start: Sequence[Any]
    atol: float = 0.0
    problem: str = ""
    signature: str | None = None

    def __str__(self) -> str:
        return self.name


CASES: list[Streaming] = []


def _case(*start: Any, **settings: Any) -> Callable[[Callable[[], bytes]], Callable[[], bytes]]:
    def add(make: Callable[[], bytes]) -> Callable[[], bytes]:
        CASES.append(Streaming(make.__name__.strip("_"), make(), start, **settings))
        return make

    return add


def scale_of(kind: str) -> dict[str, Any]:
    zero = {"INT8": -4, "UINT8": 120}.get(kind, 0)
    return {"scale": [0.1], "zero_point": [zero]} if kind in QUANTIZED else {}


def handle(output: int, name: str = "v", container: str = "") -> O:
    """Return a VAR_HANDLE."""
    fields = {"shared_name": name, **({"container": container} if container else {})}
    return O("VAR_HANDLE", [], [output], "VarHandleOptions", fields)


def once(subgraph: int = 1) -> O:
    return O("CALL_ONCE", [], [], "CallOnceOptions", {"init_subgraph_index": subgraph})


def read(variable: int, output: int) -> O:
    return O("READ_VARIABLE", [variable], [output])


def assign(variable: int, value: int) -> O:
    return O("ASSIGN_VARIABLE", [variable, value], [])


def resource(name: str = "h") -> T:
    return T(name, (1,), "RESOURCE")


def initial(*items: tuple[str, str, T]) -> S:
    """Return a subgraph that assigns constants to variables: (shared name, container, constant)."""
    tensors: list[T] = []
    operators: list[O] = []
    for number, (name, container, constant) in enumerate(items):
        tensors += [resource(f"h{number}"), constant]
        operators += [handle(2 * number, name, container), assign(2 * number, 2 * number + 1)]
    return S(tensors, operators, [], [], "init")


def first(*numbers: float, kind: str = "FLOAT32", **settings: Any) -> tuple[str, str, T]:
    return "v", "", T("c", data=np.asarray(numbers, kind.lower()), **{**scale_of(kind), **settings})


def running_sum(*before: O, kind: str = "FLOAT32", extra: Sequence[T] = (), **settings: Any) -> S:
    """Return the subgraph ``y = x + v; v = y``; tensors 0 to 3 are x, the handle, v and y."""
    quant = scale_of(kind)
    tensors = [T("x", (2,), kind, **quant), resource(), T("r", (2,), kind, **{**quant, **settings})]
    tensors += [T("y", (2,), kind, **quant), *extra]
    operators = [*before, handle(1), read(1, 2), O("ADD", [0, 2], [3], "AddOptions"), assign(1, 3)]
    return S(tensors, operators, [0], [3])


def shift_register(kind: str, *, is_quantized: bool) -> bytes:
    """``y = concat(v[1:], x); v = y``: data movement, for every type."""
    quant = {"scale": [0.5], "zero_point": [0 if kind == "INT16" else 3]} if is_quantized else {}
    begin, size = T("b", data=np.array([1], np.int32)), T("s", data=np.array([2], np.int32))
    tensors = [T("x", (1,), kind, **quant), resource(), T("r", (3,), kind, **quant), begin, size]
    tensors += [T("t", (2,), kind, **quant), T("y", (3,), kind, **quant)]
    operators = [once(), handle(1), read(1, 2), O("SLICE", [2, 3, 4], [5], "SliceOptions")]
    operators += [O("CONCATENATION", [5, 0], [6], "ConcatenationOptions", {"axis": 0}), assign(1, 6)]
    constant = T("c", data=np.arange(3).astype(kind.lower()), **quant)
    return serialize(S(tensors, operators, [0], [6]), initial(("v", "", constant)))


for _kind in TYPES:
    for _is_quantized in (False, True)[: 1 + (_kind in (*QUANTIZED, "INT32"))]:
        _name = f"shift_register_{_kind.lower()}{'_quantized' * _is_quantized}"
        _model = shift_register(_kind, is_quantized=_is_quantized)
        CASES.append(Streaming(_name, _model, [np.arange(3)]))
for _kind in (*QUANTIZED, "FLOAT32"):
    _start = (101, 102) if _kind == "UINT8" else (1, 2)
    _model = serialize(running_sum(once(), kind=_kind), initial(first(*_start, kind=_kind)))
    CASES.append(Streaming(f"running_sum_{_kind.lower()}", _model, [_start]))


@_case([1, 2], [3, 4], [5, 6])
def _containers() -> bytes:
    """Variables v of no container, v of the container box, and box/v of no container."""
    tensors = [T("x", (2,)), resource("h1"), resource("h2"), resource("h3")]
    tensors += [T(name, (2,)) for name in ("a", "b", "c", "s", "p", "y")]
    operators = [once(), handle(1), handle(2, container="box"), handle(3, "box/v")]
    operators += [read(1, 4), read(2, 5), read(3, 6), O("ADD", [0, 4], [7], "AddOptions")]
    operators += [O("MUL", [7, 5], [8], "MulOptions"), O("SUB", [8, 6], [9], "SubOptions")]
    operators += [assign(1, 7), assign(2, 8), assign(3, 9)]
    one, two, three = (T("c", data=np.array(pair, np.float32)) for pair in ((1, 2), (3, 4), (5, 6)))
    return serialize(S(tensors, operators, [0], [9]), initial(("v", "", one), ("v", "box", two), ("box/v", "", three)))


@_case([1, 2])
def _variable_with_the_name_of_an_input() -> bytes:
    tensors = [T("x", (2,)), resource(), T("r", (2,)), T("x:next", (2,))]
    operators = [once(), handle(1, "x"), read(1, 2), O("ADD", [0, 2], [3], "AddOptions"), assign(1, 3)]
    return serialize(S(tensors, operators, [0], [3]), initial(("x", "", first(1, 2)[2])))


@_case()
def _assigned_before_it_is_read() -> bytes:
    """The variable is not a state: every run assigns it first."""
    tensors = [T("x", (2,)), resource(), T("r", (2,)), T("y", (2,)), T("k", data=np.array([7, 8], np.float32))]
    operators = [once(), handle(1), assign(1, 4), read(1, 2), O("ADD", [0, 2], [3], "AddOptions"), assign(1, 3)]
    return serialize(S(tensors, operators, [0], [3]), initial(first(1, 2)))


def _set_to_a_constant(kind: str) -> bytes:
    """``y = x + v``, and every run ends with ``v = constant``."""
    quant = scale_of(kind)
    tensors = [T("x", (2,), kind, **quant), resource(), T("r", (2,), kind, **quant), T("y", (2,), kind, **quant)]
    tensors.append(T("k", data=np.array([7, 8], kind.lower()), **quant))
    operators = [once(), handle(1), read(1, 2), O("ADD", [0, 2], [3], "AddOptions"), assign(1, 4)]
    return serialize(S(tensors, operators, [0], [3]), initial(first(1, 2, kind=kind)))


CASES.append(Streaming("set_to_a_constant", _set_to_a_constant("FLOAT32"), [(1, 2)]))
CASES.append(Streaming("set_to_a_quantized_constant", _set_to_a_constant("INT8"), [(1, 2)]))


@_case(np.exp([2, 3]), atol=1e-5)
def _computed_initial_content() -> bytes:
    tensors = [resource(), T("c", data=np.array([2, 3], np.float32)), T("e", (2,))]
    return serialize(running_sum(once()), S(tensors, [handle(0), O("EXP", [1], [2]), assign(0, 2)], [], [], "init"))


@_case([8, 10])
def _computed_quantized_initial_content() -> bytes:
    """(2 + 4) * 2 - 4 = 8 by the zero point -4."""
    quant = scale_of("INT8")
    tensors = [resource(), T("c", data=np.array([2, 3], np.int8), **quant), T("e", (2,), "INT8", **quant)]
    operators = [handle(0), O("ADD", [1, 1], [2], "AddOptions"), assign(0, 2)]
    return serialize(running_sum(once(), kind="INT8"), S(tensors, operators, [], [], "init"))


@_case([2, 3])
def _initialized_from_another_variable() -> bytes:
    tensors = [resource("h1"), first(2, 3)[2], resource("h2"), T("r", (2,))]
    operators = [handle(0, "other"), handle(2), assign(0, 1), read(0, 3), assign(2, 3)]
    return serialize(running_sum(once()), S(tensors, operators, [], [], "init"))


@_case([1, 20])
def _initial_content_of_another_scale() -> bytes:
    """The stored integers are kept."""
    model = running_sum(once(), kind="INT8")
    return serialize(model, initial(first(1, 20, kind="INT8", scale=[0.3], zero_point=[5])))


@_case([1, 2], problem="its scale after a run differs")
def _assigned_with_another_scale() -> bytes:
    return serialize(running_sum(once(), kind="INT8", scale=[0.2], zero_point=[1]), initial(first(1, 2, kind="INT8")))


@_case([1, 2], problem=r"has the shape \[2\] before a run and \[4\] after it")
def _growing_content() -> bytes:
    tensors = [T("x", (2,)), resource(), T("r", (2,)), T("y", (4,))]
    concat = O("CONCATENATION", [2, 0], [3], "ConcatenationOptions", {"axis": 0})
    return serialize(S(tensors, [once(), handle(1), read(1, 2), concat, assign(1, 3)], [0], [3]), initial(first(1, 2)))


def _loop(kind: str, *, passes_handle: bool = False, calls_once_inside: bool = False) -> bytes:
    """Three times ``v += x``, then ``y = v``. The handle is an input of the body, or made there."""
    quant = scale_of(kind)
    state = [T("i", (), "INT32"), T("x", (2,), kind, **quant), *([resource("s")] if passes_handle else [])]
    count = len(state)
    condition = S(
        [*state, T("n", data=np.asarray(3, np.int32)), T("c", (), "BOOL")],
        [O("LESS", [0, count], [count + 1])],
        range(count),
        [count + 1],
    )
    tensors = [*state, T("one", data=np.asarray(1, np.int32)), T("next", (), "INT32")]
    tensors += [T("r", (2,), kind, **quant), T("sum", (2,), kind, **quant), resource()]
    own = 2 if passes_handle else count + 4
    body = [O("ADD", [0, count], [count + 1], "AddOptions"), *([] if passes_handle else [handle(own)])]
    body += [once(3)] if calls_once_inside else []
    body += [read(own, count + 2), O("ADD", [1, count + 2], [count + 3], "AddOptions"), assign(own, count + 3)]
    results = [count + 1, 1, *([2] if passes_handle else [])]
    main = [T("zero", data=np.asarray(0, np.int32)), T("x", (2,), kind, **quant), resource(), T("steps", (), "INT32")]
    main += [T("same", (2,), kind, **quant), T("y", (2,), kind, **quant), resource("after")]
    ports = ([0, 1, 2], [3, 4, 6]) if passes_handle else ([0, 1], [3, 4])
    call = O("WHILE", *ports, "WhileOptions", {"cond_subgraph_index": 1, "body_subgraph_index": 2})
    operators = [*([] if calls_once_inside else [once(3)]), handle(2), call, read(2, 5)]
    subgraphs = (S(main, operators, [1], [5]), condition, S(tensors, body, range(count), results))
    return serialize(*subgraphs, initial(first(1, 2, kind=kind)))


CASES.append(Streaming("loop_int8", _loop("INT8"), [(1, 2)]))
CASES.append(Streaming("loop_with_a_handle", _loop("FLOAT32", passes_handle=True), [(1, 2)]))
CASES.append(Streaming("loop_that_initializes", _loop("FLOAT32", calls_once_inside=True), [(1, 2)]))


def _branches(is_first: bool) -> bytes:
    """``v = x + v`` or ``v = x - v`` in the branches of an IF with a constant condition."""
    quant = scale_of("INT8")

    def branch(name: str, options: str) -> S:
        tensors = [T("x", (2,), "INT8", **quant), resource(), T("r", (2,), "INT8", **quant)]
        tensors.append(T("t", (2,), "INT8", **quant))
        return S(tensors, [handle(1), read(1, 2), O(name, [0, 2], [3], options), assign(1, 3)], [0], [3])

    tensors = [T("x", (2,), "INT8", **quant), T("flag", data=np.asarray(is_first)), T("y", (2,), "INT8", **quant)]
    call = O("IF", [1, 0], [2], "IfOptions", {"then_subgraph_index": 1, "else_subgraph_index": 2})
    branches = branch("ADD", "AddOptions"), branch("SUB", "SubOptions")
    return serialize(S(tensors, [once(3), call], [0], [2]), *branches, initial(first(1, 2, kind="INT8")))


CASES.append(Streaming("first_branch", _branches(True), [(1, 2)]))
CASES.append(Streaming("second_branch", _branches(False), [(1, 2)]))


def signatures() -> bytes:
    """Two signatures with one variable: ``step`` reads and assigns it, ``load`` assigns it."""
    load = S([T("x", (2,)), resource(), T("y", (2,))], [handle(1), assign(1, 0), read(1, 2)], [0], [2], "load")
    keys = [Signature("step", [("x", 0)], [("y", 3)], 0), Signature("load", [("x", 0)], [("y", 2)], 1)]
    return serialize(running_sum(), load, signatures=keys)


@_case([1, 2], signature="step")
def _signature_with_its_own_initialization() -> bytes:
    other = S([T("x", (2,)), T("y", (2,))], [O("NEG", [0], [1])], [0], [1], "other")
    keys = [Signature("step", [("x", 0)], [("y", 3)], 0), Signature("other", [("x", 0)], [("y", 1)], 2)]
    return serialize(running_sum(once()), initial(first(1, 2)), other, signatures=keys)


def _numbers(seed: int) -> Callable[..., Any]:
    generator = np.random.default_rng(seed)
    return lambda *shape: generator.uniform(-1, 1, shape).astype(np.float32)


@_case(np.zeros((1, 3)), np.zeros((1, 3)), atol=1e-6)
def _two_cells_with_states_of_one_name() -> bytes:
    make = _numbers(1)
    tensors = [T("x", (1, 3)), T("w", data=make(3, 3)), T("r", data=make(3, 3)), T("b", data=make(3))]
    tensors += [T("h", (1, 3), variable=True), T("m", (1, 3)), T("h", (1, 3), variable=True), T("y", (1, 3))]
    options = {"fused_activation_function": 4}
    cells = [
        O("RNN", [0, 1, 2, 3, 4], [5], "RNNOptions", options),
        O("RNN", [5, 1, 2, 3, 6], [7], "RNNOptions", options),
    ]
    return serialize(S(tensors, cells, [0], [7]))


@_case(np.zeros((2, 4)), atol=1e-6)
def _layer_of_two_steps() -> bytes:
    make = _numbers(2)
    tensors = [T("x", (2, 2, 3)), T("w", data=make(4, 3)), T("r", data=make(4, 4)), T("b", data=make(4))]
    tensors += [T("h", (2, 4), variable=True), T("y", (2, 2, 4))]
    options = {"fused_activation_function": 4}
    layer = O("UNIDIRECTIONAL_SEQUENCE_RNN", [0, 1, 2, 3, 4], [5], "SequenceRNNOptions", options)
    return serialize(S(tensors, [layer], [0], [5]))


def _lstm(shape: Sequence[int], tensors: Sequence[T], states: Sequence[T], y: T, intermediates: Sequence[T]) -> bytes:
    """An LSTM with the tensors of 4 weights, 4 recurrent weights and 4 biases."""
    every = [*tensors, *states, *intermediates, y]
    places = [0, *range(1, 9), -1, -1, -1, *range(9, 13), -1, -1, 13, 14, -1, -1, -1, -1]
    inner = range(15, 15 + len(intermediates))
    name, table = "UNIDIRECTIONAL_SEQUENCE_LSTM", "UnidirectionalSequenceLSTMOptions"
    if len(shape) == 2:
        name, table = "LSTM", "LSTMOptions"
    last = len(every) - 1
    layer = O(name, places, [last], table, {"fused_activation_function": 4}, intermediates=inner)
    return serialize(S(every, [layer], [0], [last]))


def _float_lstm(*shape: int) -> bytes:
    make = _numbers(3)
    parts = [make(4, 3) for _ in range(4)] + [make(4, 4) for _ in range(4)] + [make(4) for _ in range(4)]
    states = [T(name, (shape[0], 4), variable=True) for name in ("output_state", "cell_state")]
    tensors = [T("x", shape), *(T(f"p{k}", data=part) for k, part in enumerate(parts))]
    return _lstm(shape, tensors, states, T("y", (*shape[:-1], 4)), [])


CASES.append(Streaming("lstm_step", _float_lstm(2, 3), [np.zeros((2, 4))] * 2, atol=1e-6))
CASES.append(Streaming("lstm_layer", _float_lstm(2, 2, 3), [np.zeros((2, 4))] * 2, atol=1e-6))


def _integer_lstm(batch: int, zero: int) -> bytes:
    """The output state begins at its zero point, with which LiteRT fills an INT8 variable tensor."""
    generator = np.random.default_rng(4)

    def scaled(scale: float, zero_point: int = 0) -> Mapping[str, Any]:
        return {"scale": [scale], "zero_point": [zero_point]}

    tensors = [T("x", (batch, 2, 3), "INT8", **scaled(0.03, -7))]
    for count, shape, scale in ((4, (4, 3), 0.01), (4, (4, 4), 0.012)):
        parts = [generator.integers(-127, 128, shape).astype(np.int8) for _ in range(count)]
        tensors += [T(f"w{shape}{k}", data=part, **scaled(scale)) for k, part in enumerate(parts)]
    biases = [generator.integers(-3000, 3000, 4).astype(np.int32) for _ in range(4)]
    tensors += [T(f"b{k}", data=part, **scaled(0.03 * 0.01)) for k, part in enumerate(biases)]
    states = [T("output_state", (batch, 4), "INT8", variable=True, **scaled(1 / 128, zero))]
    states.append(T("cell_state", (batch, 4), "INT16", variable=True, **scaled(2.0**-11)))
    inner = [T(f"i{k}", (), "INT16", **scaled(2.0**-12)) for k in range(4)] + [
        T("i4", (), "INT8", **scaled(1 / 128, zero))
    ]
    return _lstm((batch, 2, 3), tensors, states, T("y", (batch, 2, 4), "INT8", **scaled(1 / 128, zero)), inner)


for _batch, _zero in ((1, 5), (2, -3)):
    _start = [np.full((_batch, 4), _zero), np.zeros((_batch, 4))]
    CASES.append(Streaming(f"integer_lstm_batch_{_batch}", _integer_lstm(_batch, _zero), _start))


@_case(np.zeros((2, 16)), atol=1e-5)
def _svdf() -> bytes:
    make = _numbers(5)
    tensors = [T("x", (2, 3)), T("wf", data=make(4, 3)), T("wt", data=make(4, 4)), T("b", data=make(2))]
    tensors += [T("s", (2, 16), variable=True), T("y", (2, 2))]
    return serialize(S(tensors, [O("SVDF", range(5), [5], "SVDFOptions", {"rank": 2})], [0], [5]))


@_case(np.zeros((2, 16)), atol=1.0)
def _integer_svdf() -> bytes:
    """The kernel demands RELU and does not apply it. Its sum over time is computed in float here: one step."""
    generator = np.random.default_rng(6)
    scales = {"x": 0.047, "wf": 0.021, "s": 0.0041, "wt": 0.00093, "y": 0.47}
    tensors = [T("x", (2, 3), "INT8", scale=[scales["x"]], zero_point=[-3])]
    parts = {
        "wf": generator.integers(-127, 128, (4, 3)).astype(np.int8),
        "wt": generator.integers(-3000, 3000, (4, 4)).astype(np.int16),
        "b": generator.integers(-200_000, 200_000, 2).astype(np.int32),
    }
    scales["b"] = scales["s"] * scales["wt"]
    tensors += [T(name, data=part, scale=[scales[name]], zero_point=[0]) for name, part in parts.items()]
    tensors.append(T("s", (2, 16), "INT16", scale=[scales["s"]], zero_point=[0], variable=True))
    tensors.append(T("y", (2, 2), "INT8", scale=[scales["y"]], zero_point=[5]))
    options = {"rank": 2, "fused_activation_function": 1}
    return serialize(S(tensors, [O("SVDF", range(5), [5], "SVDFOptions", options, version=4)], [0], [5]))
