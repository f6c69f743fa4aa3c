"""Batches: threads run whole parts, with the bytes of runs one after the other."""

import threading

import numpy as np
import pytest

from tests.support.native_cases import make
from tests.support.native_cases.comparison import evaluator
from tpuconvert.runtime.native.builder.loader import available_isas, extension, native
from tpuconvert.runtime.native.plan import NativePlan
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.errors import RunError
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.copy import Copy
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.types import F32, I32, U8, TensorType

pytestmark = pytest.mark.skipif(extension() is None, reason="the native engine was not built")

THREADS = [1, 2, 3]


def joined(parts):
    return [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]


def parts_of(case, count):
    rng = np.random.default_rng(count)
    return [[rng.permutation(array.reshape(-1)).reshape(array.shape) for array in case.feeds] for _ in range(count)]


@pytest.mark.parametrize(("kind", "seed"), [("chains", 1), ("quantized_networks", 2), ("conv_v2_large", 3)])
@pytest.mark.parametrize("threads", THREADS)
def test_a_batch_gives_the_bytes_of_its_parts(kind, seed, threads):
    """Also where the number of parts is not a multiple of the number of threads."""
    case = make(kind, seed)
    evaluate = evaluator(case.chip)
    plan = NativePlan(case.graph, case.chip.name, available_isas()[-1], threads)
    alone = NativePlan(case.graph, case.chip.name, available_isas()[0], 1)
    for count in (threads, threads + 1, 7):
        parts = parts_of(case, count)
        assert plan.can_run_batches(count)
        found = plan.run_batch(joined(parts), count, evaluate)
        wanted = joined([alone.run(each, evaluate) for each in parts])
        assert [array.shape for array in found] == [array.shape for array in wanted]
        assert [array.tobytes() for array in found] == [array.tobytes() for array in wanted]
    assert len(plan._idle_of_batches) == threads


def test_a_long_batch_can_be_interrupted(monkeypatch):
    """The interpreter handles signals between groups of parts."""
    monkeypatch.setattr("tpuconvert.runtime.native.plan.PARTS_AT_ONCE", 2)
    plan = NativePlan(doubling_copy(), "BM1686", available_isas()[-1], 2)
    counts = []
    run_parts = plan._run_parts
    monkeypatch.setattr(plan, "_run_parts", lambda *given: (counts.append(given[2]), run_parts(*given)))
    x = np.arange(22 * 300).reshape(22, 300).astype(np.uint8)
    [found] = plan.run_batch([x], 11, None)
    assert np.array_equal(found, x)
    assert counts == [4, 4, 2]  # and one part by all threads


def doubling_copy():
    """Two copies of a tensor: no kernel allocates much, so that a run is short."""
    graph = Graph()
    x = graph.input("x", TensorType(U8, (2, 300)))
    graph.output(graph.add(Copy(), x, name="y"))
    return graph


def test_a_session_runs_the_parts_in_threads_of_the_engine(monkeypatch):
    taken = []
    run_batch = NativePlan.run_batch
    monkeypatch.setattr(NativePlan, "run_batch", lambda *given: (taken.append(given[2]), run_batch(*given))[1])
    x = np.arange(8 * 300).reshape(8, 300).astype(np.uint8)
    with Session(doubling_copy(), backend="native", threads=2) as session:
        assert np.array_equal(session.run(x)["y"], x)
        assert taken == [4]
        seen = []
        assert np.array_equal(session.run({"x": x}, observe=lambda value, array: seen.append(value.name))["y"], x)
        assert taken == [4]
        assert seen == ["x", "y"] * 4
        assert np.array_equal(session.run(x[:2])["y"], x[:2])
        assert taken == [4]


def test_parts_run_one_after_the_other_where_the_memory_of_all_threads_does_not_fit():
    case = make("quantized_networks", 2)
    settings = case.graph, case.chip.name, available_isas()[-1], 2
    plan = NativePlan(*settings)
    alone = plan.arena_bytes + plan.packed_bytes + plan.scratch_bytes
    both = 2 * plan.arena_bytes + plan.packed_bytes + plan.scratch_bytes
    assert not NativePlan(*settings, memory_limit=alone).can_run_batches(2)
    assert not NativePlan(*settings, memory_limit=both - 1).can_run_batches(2)
    assert NativePlan(*settings, memory_limit=both).can_run_batches(2)


def test_a_batch_smaller_than_the_number_of_threads_uses_them_for_each_part():
    case = make("chains", 1)
    plan = NativePlan(case.graph, case.chip.name, available_isas()[-1], 3)
    assert not plan.can_run_batches(2)
    assert plan.can_run_batches(3)


@pytest.mark.parametrize("threads", THREADS)
def test_a_part_that_fails_is_an_error_with_its_node(threads):
    graph = Graph()
    x = graph.input("x", TensorType(F32, (4,)))
    index = graph.input("index", TensorType(I32, (1,)))
    graph.output(graph.add(IndexSelect(0), graph.add(Copy(), x, name="copied"), index, name="chosen"))
    with Session(graph, backend="native", threads=threads) as session:
        plan = session._native.plan({})
        feeds = [np.arange(16, dtype=np.float32), np.array([0, 3, 9, 1], np.int32)]
        if plan.reference_nodes:
            pytest.skip("index_select has no kernel for this case")
        with pytest.raises(RunError, match="chosen"):
            plan.run_batch(feeds, 4, session._evaluate)
        feeds[1][2] = 2
        [found] = plan.run_batch(feeds, 4, session._evaluate)
        assert found.tolist() == [0, 7, 10, 13]


def copying_program(threads):
    module = native()
    spec = module.CopySpec(
        source=module.Place(0), target=module.Place(1), shape=[64], source_strides=[1], target_strides=[1], itemsize=1
    )
    buffers = [("external", 0, 64), ("external", 0, 64)]
    return module.Program(
        steps=[module.copy(spec, "scalar")], buffers=buffers, constants=[], arena_bytes=64, threads=threads
    )


def refuses(program, memories, inputs, outputs, parts):
    with pytest.raises((ValueError, TypeError)) as told:
        program.run_batch(memories, inputs, outputs, parts)
    return str(told.value)


def test_refuses_what_would_leave_an_array_or_share_a_memory():
    program = copying_program(2)
    x, y = np.arange(256, dtype=np.uint8), np.zeros(256, np.uint8)
    memories = [program.make_memory(True), program.make_memory(True)]
    program.run_batch(memories, [(0, x)], [(1, y)], 4)
    assert np.array_equal(x, y)
    need = "a batch needs one memory per thread"
    assert refuses(program, memories[:1], [(0, x)], [(1, y)], 4) == need
    assert refuses(program, memories[:1] * 2, [(0, x)], [(1, y)], 4) == need
    assert refuses(program, [None, memories[0]], [(0, x)], [(1, y)], 4)
    other = copying_program(2).make_memory(True)
    assert refuses(program, [memories[0], other], [(0, x)], [(1, y)], 4) == "the memory belongs to another program"
    assert "at least one part" in refuses(program, memories, [(0, x)], [(1, y)], 0)
    assert "does not fit" in refuses(program, memories, [(0, x)], [(1, y)], 5)
    assert "does not fit" in refuses(program, memories, [(0, x[:255])], [(1, y)], 4)
    assert "does not fit" in refuses(program, memories, [(7, x)], [(1, y)], 4)
    assert "write to an input" in refuses(program, memories, [(0, x), (1, y)], [], 4)
    fresh = [program.make_memory(True), program.make_memory(True)]
    assert "before all its inputs" in str(raised(lambda: program.run_batch(fresh, [(0, x)], [], 4)))


def raised(call):
    with pytest.raises(Exception) as told:  # noqa: PT011  a std::logic_error has no Python type of its own
        call()
    return told.value


def test_a_memory_of_one_thread_never_serves_several():
    """Its scratch area would be too small for the others."""
    case = make("conv_v2_large", 3)
    evaluate = evaluator(case.chip)
    plan = NativePlan(case.graph, case.chip.name, available_isas()[-1], 4)
    wanted = [array.tobytes() for array in plan.run(case.feeds, evaluate)]
    plan._idle[:] = [plan._program.make_memory(True)]
    assert [array.tobytes() for array in plan.run(case.feeds, evaluate)] == wanted


def test_batches_overlap():
    case = make("quantized_networks", 2)
    evaluate = evaluator(case.chip)
    plan = NativePlan(case.graph, case.chip.name, available_isas()[-1], 2)
    feeds = joined(parts_of(case, 4))
    wanted = [array.tobytes() for array in plan.run_batch(feeds, 4, evaluate)]
    wrong = []

    def work():
        for _ in range(10):
            if [array.tobytes() for array in plan.run_batch(feeds, 4, evaluate)] != wanted:
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not wrong
    assert not any(thread.is_alive() for thread in threads)
