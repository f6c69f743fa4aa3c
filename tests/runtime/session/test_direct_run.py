"""Runs without conversions give what checked runs give, and everything else takes the checked path."""

import numpy as np
import pytest

import tpuconvert as tc
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.errors import RunError, UsageError
from tpuconvert.schema.graph.graph import Graph, Port
from tpuconvert.schema.ops.arithmetic import Add
from tpuconvert.schema.ops.copy import Constdata
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.types import F32, I32, TensorType

pytest.importorskip("tpuconvert.runtime._native")


def sum_graph() -> Graph:
    graph = Graph("sum")
    a, b = (graph.input(name, TensorType(F32, (2, 3))) for name in "ab")
    graph.output(graph.add(Add(), a, b, name="y"))
    return graph


def feeds(dtype: type = np.float32) -> dict[str, np.ndarray]:
    return {"a": np.arange(6, dtype=dtype).reshape(2, 3), "b": np.full((2, 3), 10, dtype)}


def direct(session: Session) -> bool:
    assert session._direct is not None
    return session._direct.run(feeds()) is not None


def test_results_are_those_of_a_checked_run() -> None:
    with Session(sum_graph(), threads=1) as session:
        assert direct(session)
        first, second = session.run(feeds()), session.run({**feeds(), "b": np.zeros((2, 3), np.float32)})
        assert first["y"].tolist() == [[10, 11, 12], [13, 14, 15]]
        assert second["y"].tolist() == [[0, 1, 2], [3, 4, 5]]
        assert session.run(**feeds())["y"].tolist() == first["y"].tolist()
        assert session.run(list(feeds().values()))["y"].tolist() == first["y"].tolist()


@pytest.mark.parametrize("change", [
    lambda x: np.asfortranarray(x),
    lambda x: np.concatenate([x, x], axis=1)[:, ::2],
    lambda x: x.view(type("Sub", (np.ndarray,), {})),
    lambda x: np.frombuffer(b"0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(2, 3),
    lambda x: x.tolist(),
])  # fmt: skip
def test_arrays_that_need_a_copy(change: object) -> None:
    with Session(sum_graph(), threads=1) as session:
        assert session._direct is not None
        given = {**feeds(), "a": change(feeds()["a"])}  # type: ignore[operator]
        assert session._direct.run(given) is None
        expected = np.asarray(given["a"], np.float32) + 10
        assert session.run(given)["y"].tolist() == expected.tolist()


def test_wrong_feeds_are_refused_as_before() -> None:
    with Session(sum_graph(), threads=1) as session:
        with pytest.raises(UsageError, match="missing inputs"):
            session.run({"a": feeds()["a"]})
        with pytest.raises(UsageError, match="unknown inputs"):
            session.run({**feeds(), "c": feeds()["a"]})
        with pytest.raises(UsageError):
            session.run({**feeds(), "a": np.zeros((2, 4), np.float32)})
        with pytest.raises(UsageError, match="keyword"):
            session.run(feeds(), a=feeds()["a"])
    with pytest.raises(UsageError, match="closed"):
        session.run(feeds())


def test_observers_get_every_value() -> None:
    seen = []
    with Session(sum_graph(), threads=1) as session:
        session.run(feeds(), observe=lambda value, _: seen.append(value.name))
    assert seen == ["a", "b", "y"]


def test_models_with_conversions_have_no_direct_runs() -> None:
    graph = Graph("ids")
    x = graph.input("x", TensorType(I32, (1, 2)), Port("x", "int64", (1, 2)))
    graph.output(graph.add(Add(), x, x, name="y"), Port("y", "int64", (1, 2)))
    with Session(graph, threads=1) as session:
        assert session._direct is None
        assert session.run({"x": np.array([[1, 2]])})["y"].dtype == np.int64
    symbolic = Graph("open")
    x = symbolic.input("x", TensorType(F32, ("n", 3)))
    symbolic.output(symbolic.add(Add(), x, x))
    with Session(symbolic, threads=1) as session:
        assert session._direct is None


def test_errors_name_the_node() -> None:
    graph = Graph("rows")
    index = graph.input("index", TensorType(I32, (2,)))
    table = graph.add(Constdata(), graph.constant(np.ones((4, 2), np.float32), "table"))
    graph.output(graph.add(IndexSelect(0), table, index, name="picked_rows"))
    with Session(graph, threads=1) as session:
        assert session._direct is not None
        with pytest.raises(RunError, match="picked_rows"):
            session.run({"index": np.array([0, 4], np.int32)})
        assert session.run({"index": np.array([0, 3], np.int32)})["picked_rows"].shape == (2, 2)


def test_results_of_earlier_runs_stay() -> None:
    with tc.Session(sum_graph(), threads=1) as session:
        results = [session.run({"a": np.full((2, 3), k, np.float32), "b": feeds()["b"]})["y"] for k in range(50)]
    assert [result[0, 0] for result in results] == [10 + k for k in range(50)]
