"""Sessions of a file free its weights when they are packed, and read them again when a run needs them."""

import gc
import os
import threading
from pathlib import Path

import numpy as np
import pytest

from tests.support.native_cases.random_graphs import needs_extension
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.errors import CorruptInputError, UsageError
from tpuconvert.schema.file import constant_file
from tpuconvert.schema.file.file_format import HEADER_SIZE, FileModel, read_model, write_model
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.graph.graph_elements import DroppedData
from tpuconvert.schema.ops.arithmetic import Add
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.types import F32, Array, Chip, TensorType

DEPTH = 200
FEEDS = {"x": np.random.default_rng(3).standard_normal((2, DEPTH)).astype(np.float32)}

pytestmark = [
    pytest.mark.skipif(not constant_file.IS_SUPPORTED, reason="files cannot be read at an offset here"),
    needs_extension,
]


def write(path: Path, seed: int = 0) -> Path:
    """Write a model of two matmuls, whose weights have more than 64 KB, and a small constant between them."""
    random, graph = np.random.default_rng(seed), Graph("matmuls")
    value = graph.input("x", TensorType(F32, (2, DEPTH)))
    for name in ("first", "second"):
        weights = random.standard_normal((DEPTH, DEPTH)).astype(np.float32)
        value = graph.add(MatrixMul(), value, graph.constant(weights, f"{name} weights"), name=name)
        bias = random.standard_normal((1, DEPTH)).astype(np.float32)
        value = graph.add(Add(), value, graph.constant(bias, f"{name} bias"))
    graph.output(value)
    write_model(path, FileModel(graph, Chip.BM1686, "1"))
    return path


def dropped(session: Session) -> list[str]:
    """Names of the constants that are not in memory."""
    return [value.name for value in session._graph.values if isinstance(value._data, DroppedData)]


def assert_equal(arrays: dict[str, Array], others: dict[str, Array]) -> None:
    assert list(arrays) == list(others)
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, others[name], name)


def observed(session: Session) -> dict[str, Array]:
    found: dict[str, Array] = {}
    session.run(FEEDS, observe=lambda value, array: found.__setitem__(value.name, array))
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "m.tpum")


def test_packed_weights_are_read_again_for_an_observer(path: Path) -> None:
    with Session(path, backend="native", threads=1) as session, Session(read_model(path), backend="native") as whole:
        assert dropped(session) == ["first weights", "second weights"] and dropped(whole) == []
        before = session.run(FEEDS)
        assert_equal(observed(session), observed(whole))
        assert dropped(session) == []
        for results in (before, session.run(FEEDS)):
            assert_equal(results, whole.run(FEEDS))


def test_sessions_without_packed_weights_keep_them(path: Path) -> None:
    with Session(path, backend="reference") as session:
        assert dropped(session) == []
    with Session(path, backend="native", observed=True) as session:
        assert dropped(session) == [] and observed(session)


def test_another_plan_of_the_file_reads_the_weights_again(path: Path) -> None:
    with Session(path, backend="native", threads=1) as first, Session(path, backend="native", threads=2) as second:
        assert first._graph is second._graph
        assert_equal(first.run(FEEDS), second.run(FEEDS))
        with Session(path, backend="reference") as third:
            assert [array.shape for array in third.run(FEEDS).values()] == [(2, DEPTH)]


def test_a_file_that_was_replaced_is_still_read(path: Path, tmp_path: Path) -> None:
    with Session(path, backend="native") as session:
        wanted = observed(Session(read_model(path), backend="native"))
        os.replace(write(tmp_path / "other.tpum", seed=1), path)
        assert_equal(observed(session), wanted)


def test_a_file_that_was_changed_is_refused(path: Path) -> None:
    with Session(path, backend="native") as session:
        results = session.run(FEEDS)
        with path.open("r+b") as file:
            file.seek(HEADER_SIZE + 10)
            file.write(b"changed")
        with pytest.raises(CorruptInputError, match=r"m\.tpum: it was changed while a session had it open"):
            observed(session)
        assert_equal(results, session.run(FEEDS))
        os.truncate(path, HEADER_SIZE + 100)
        with pytest.raises(UsageError, match=r"m\.tpum: it was truncated while it was read"):
            observed(session)
        assert_equal(results, session.run(FEEDS))


def test_an_observer_after_the_session_was_closed(path: Path) -> None:
    session = Session(path, backend="native")
    graph = session._graph
    session.close()
    with pytest.raises(CorruptInputError, match="weights cannot be read again"):
        _ = [value.data for value in graph.values]


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="this system does not list open files")
def test_no_file_stays_open(path: Path) -> None:
    gc.disable()
    try:
        for _ in range(3):
            with Session(path, backend="native") as session:
                session.run(FEEDS)
            del session
        names = [os.readlink(entry) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
        assert str(path) not in names
    finally:
        gc.enable()


def test_threads_that_observe_read_the_weights_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads, read = [], constant_file.ConstantFile.read
    with Session(path, backend="native") as session:
        monkeypatch.setattr(constant_file.ConstantFile, "read", lambda self, data: reads.append(1) or read(self, data))
        results: list[dict[str, Array]] = []
        threads = [threading.Thread(target=lambda: results.append(observed(session))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(results) == 4 and reads == [1]
    for found in results[1:]:
        assert_equal(found, results[0])


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_damaged_files_have_the_errors_of_read_model(every: int, path: Path, tmp_path: Path) -> None:
    content, target = path.read_bytes(), tmp_path / "damaged.tpum"
    places = [*range(0, HEADER_SIZE, 7), HEADER_SIZE, len(content) // 2, *range(len(content) - 2000, len(content), 97)]
    for place in places[::every]:
        target.write_bytes(content[:place] + bytes([content[place] ^ 0x41]) + content[place + 1 :])
        with pytest.raises((CorruptInputError, UsageError)) as wanted:
            read_model(target)
        with pytest.raises(type(wanted.value)) as found:
            Session(target)
        assert str(found.value) == str(wanted.value)
    for size in (0, 5, HEADER_SIZE, len(content) - 1):
        target.write_bytes(content[:size])
        with pytest.raises(CorruptInputError):
            Session(target)


@pytest.mark.parametrize("piece", [1, 64, 4096, 1 << 30])
def test_pieces_cover_the_weights(path: Path, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constant_file, "PIECE", piece)
    with Session(path, backend="reference") as session:
        for value, other in zip(session._graph.values, read_model(path).graph.values, strict=True):
            if other.is_constant:
                np.testing.assert_array_equal(value.array, other.array)
                assert value.array.ctypes.data % 64 == 0 and not value.array.flags.writeable
