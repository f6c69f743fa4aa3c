"""``Session.run(outputs=, change=)``: the bytes of a whole run, only what is needed, errors that name tensors."""

from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.native_cases.random_graphs import needs_extension
from tests.support.networks.decoders import FORMS, decoder
from tpuconvert.runtime.session import partial_run
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.types import F32, Array, Scalar, TensorType

ROWS = np.load("examples/digits/calibration.npz")["images"][:3, None] * np.float32(0.0625)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("float", "native"), marks=needs_extension, id="float-native"),
        pytest.param(("int8", "native"), marks=needs_extension, id="int8-native"),
        pytest.param(("int8", "reference"), id="int8-reference"),
    ],
)
def session(request: pytest.FixtureRequest) -> Iterator[tc.Session]:
    quantization: Literal["int8"] | None = "int8" if request.param[0] == "int8" else None
    samples = ROWS if quantization else None
    model = tc.convert("examples/digits/digits.onnx", quantize=quantization, calibration=samples)
    with tc.Session(model, backend=request.param[1]) as session:
        yield session


def tensors_of(session: tc.Session, x: Array) -> dict[str, Array]:
    """Every computed tensor, by name, in the order of a run."""
    seen: dict[str, Array] = {}
    session.run(x, observe=lambda value, array: seen.__setitem__(value.name, np.array(array)))
    return {name: array for name, array in seen.items() if name != "image"}


def test_tensors_equal_those_of_a_whole_run(session: tc.Session) -> None:
    seen = tensors_of(session, ROWS[:1])
    found = session.run(ROWS[:1], outputs=list(seen))
    assert list(found) == list(seen)
    for name, array in seen.items():
        if name != "probability":  # an output has the type of its port
            assert found[name].tobytes() == array.tobytes(), name
    assert found["probability"].tobytes() == session.run(ROWS[:1])["probability"].tobytes()


def test_batches_are_joined(session: tc.Session) -> None:
    name = list(tensors_of(session, ROWS[:1]))[2]
    found = session.run(ROWS, outputs=[name])[name]
    assert len(found) == len(ROWS)
    assert found[1:2].tobytes() == session.run(ROWS[1:2], outputs=[name])[name].tobytes()


def test_nodes_behind_a_changed_tensor_read_the_change(session: tc.Session) -> None:
    names = list(tensors_of(session, ROWS[:1]))
    middle = names[len(names) // 2]
    plain = session.run(ROWS[:1])["probability"]
    kept = session.run(ROWS[:1], change={middle: lambda array: array})["probability"]
    assert kept.tobytes() == plain.tobytes()
    changed = session.run(ROWS[:1], outputs=[names[0], middle, "probability"], change={middle: np.zeros_like})
    assert not changed[middle].any() and not np.array_equal(changed["probability"], plain)
    assert changed[names[0]].tobytes() == session.run(ROWS[:1], outputs=[names[0]])[names[0]].tobytes()


def test_a_change_sees_the_changes_before_it(session: tc.Session) -> None:
    names = list(tensors_of(session, ROWS[:1]))
    first, second = names[3], names[-2]
    seen: list[Array] = []

    def keep(array: Array) -> Array:
        seen.append(array)
        return array

    # The functions are not given in the order of the graph.
    session.run(ROWS[:1], change={second: keep, first: np.zeros_like})
    expected = session.run(ROWS[:1], outputs=[second], change={first: np.zeros_like})[second]
    assert seen[0].tobytes() == expected.tobytes()


def test_changes_follow_the_computation_where_the_values_are_in_another_order() -> None:
    """A rule adds nodes before others: then an operand is a later value of the graph than its result."""
    graph = Graph("g")
    x = graph.input("x", TensorType(F32, (1, 4)))
    last = graph.add(Clamp(Scalar(F32, 0.0), Scalar(F32, 6.0)), x, name="last")
    assert last.producer is not None
    first = graph.add(Clamp(Scalar(F32, -1.0), Scalar(F32, 1.0)), x, name="first")
    graph.set_input(last.producer, 0, first)
    graph.output(last)
    with tc.Session(graph, backend="reference") as session:
        calls: list[tuple[str, list[float]]] = []

        def note(name: str, factor: float) -> Callable[[Array], Array]:
            def change(array: Array) -> Array:
                calls.append((name, array[0].tolist()))
                return array * np.float32(factor)

            return change

        ones = np.ones((1, 4), np.float32)
        found = session.run({"x": ones}, change={"last": note("last", 1), "first": note("first", 3)})
    assert calls == [("first", [1.0] * 4), ("last", [3.0] * 4)]
    assert found["last"].tolist() == [[3.0] * 4]


def test_parts_are_dropped(session: tc.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partial_run, "MOST_PARTS", 1)
    names = list(tensors_of(session, ROWS[:1]))[:3]
    for name in [*names, *names]:
        assert list(session.run(ROWS[:1], outputs=[name])) == [name]
    assert session._parts is not None and len(session._parts._sessions) == 1


def test_only_needed_inputs_are_required() -> None:
    from onnx import TensorProto, helper

    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in ("a", "b", "sum", "twice")]
    nodes = [helper.make_node("Add", ["a", "a"], ["twice"]), helper.make_node("Add", ["twice", "b"], ["sum"])]
    model = tc.convert(helper.make_model(helper.make_graph(nodes, "g", ports[:2], ports[2:])))
    one = np.ones((1, 4), np.float32)
    with tc.Session(model) as session:
        assert session.run({"a": one}, outputs=["twice"])["twice"].tolist() == [[2, 2, 2, 2]]
        with pytest.raises(tc.UsageError, match="b"):
            session.run({"a": one}, outputs=["sum"])
        with pytest.raises(tc.UsageError, match="unknown inputs"):
            session.run({"a": one, "c": one}, outputs=["twice"])
        with pytest.raises(tc.UsageError, match="change names an input or a constant"):
            session.run({"a": one, "b": one}, change={"a": np.zeros_like})


def test_errors(session: tc.Session) -> None:
    with pytest.raises(tc.UsageError, match="has no tensor 'probabilty'") as caught:
        session.run(ROWS[:1], outputs=["probabilty"])
    assert "did you mean 'probability'" in caught.value.hint
    with pytest.raises(tc.UsageError, match="a name twice"):
        session.run(ROWS[:1], outputs=["probability", "probability"])
    with pytest.raises(tc.UsageError, match="outputs is the text 'probability'"):
        session.run(ROWS[:1], outputs="probability")
    name = list(tensors_of(session, ROWS[:1]))[1]
    with pytest.raises(tc.UsageError, match=rf"the change of '{name}' returned float64"):
        session.run(ROWS[:1], change={name: lambda array: array.astype(np.float64)})
    with pytest.raises(tc.UsageError, match="returned NoneType"):
        session.run(ROWS[:1], change={name: lambda array: None})  # type: ignore[arg-type,return-value]


def test_models_with_states_are_refused() -> None:
    with (
        tc.Session(tc.convert(decoder(FORMS[0], seed=1))) as session,
        pytest.raises(tc.UsageError, match="a model with states") as caught,
    ):
        session.run(input_ids=np.array([[1, 2]]), outputs=["logits"])
    assert "--state ports" in caught.value.hint
