"""Threads that share a session, sessions that share a file, processes that are forked: the same bytes everywhere."""

import os
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

from tests.support.native_cases import make
from tests.support.native_cases.comparison import evaluator
from tpuconvert.runtime.native.builder.loader import available_isas, extension, native
from tpuconvert.runtime.native.plan import NativePlan
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.file.file_format import FileModel, write_model
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.copy import Copy
from tpuconvert.schema.types import U8, TensorType

pytestmark = pytest.mark.skipif(extension() is None, reason="the native engine was not built")

CASES = [("chains", 1), ("chains", 7), ("conv_v2_large", 3), ("moves", 5), ("quantized_networks", 2)]


def in_threads(count, work):
    """Run ``work(number)`` in that many threads that start together; what any of them raised."""
    errors, barrier = [], threading.Barrier(count)

    def body(number):
        try:
            barrier.wait(60)
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=body, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    if errors:
        raise errors[0]


def samples(case, count):
    """Operands of the case, and others of the same types, with what one thread makes of them."""
    rng = np.random.default_rng(count)
    feeds = [case.feeds]
    for _ in range(count - 1):
        feeds.append([rng.permutation(array.reshape(-1)).reshape(array.shape) for array in case.feeds])
    plan = NativePlan(case.graph, case.chip.name, available_isas()[0], 1)
    return [(each, plan.run(each, evaluator(case.chip))) for each in feeds]


@pytest.mark.parametrize(("kind", "seed"), CASES)
@pytest.mark.parametrize("pool", [1, 2, 4])
def test_threads_share_a_plan(kind, seed, pool):
    """Overlapping runs have separate memory; a run that finds the thread pool busy uses one thread."""
    case = make(kind, seed)
    plan = NativePlan(case.graph, case.chip.name, available_isas()[-1], pool)
    known, evaluate = samples(case, 4), evaluator(case.chip)

    def work(number):
        feeds, expected = known[number]
        for _ in range(15):
            for found, want in zip(plan.run(feeds, evaluate), expected, strict=True):
                assert found.tobytes() == want.tobytes()

    in_threads(4, work)


def test_sessions_of_one_file(tmp_path):
    """Several sessions, some of which end while others run."""
    case = make("chains", 7)
    path = tmp_path / "shared.tpum"
    write_model(path, FileModel(case.graph, case.chip, "0"))
    known = samples(case, 4)
    names = [port.name for port in case.graph.input_ports]

    def work(number):
        feeds, expected = known[number]
        for threads in (1, 2, 1):
            with Session(path, backend="native", threads=threads) as session:
                for _ in range(4):
                    outputs = session.run(dict(zip(names, feeds, strict=True)))
                    for found, want in zip(outputs.values(), expected, strict=True):
                        assert found.tobytes() == want.tobytes()

    in_threads(4, work)


def test_a_run_releases_the_interpreter():
    """While compiled steps run, other Python threads go on: two runs can be inside at the same time.

    Each of two threads marks its run as begun and as ended. The runs take long compared with the hand-over of the
    interpreter, so that with the lock held one would end before the other could begin.
    """
    module, size = native(), 1 << 20
    # Many large copies: some hundred milliseconds that only the extension works.
    spec = module.CopySpec(
        source=module.Place(0), target=module.Place(1), shape=[size], source_strides=[1], target_strides=[1], itemsize=1
    )
    step = module.copy(spec, "scalar")
    buffers = [("arena", 0, size), ("arena", size + 64, size)]
    program = module.Program(steps=[step] * 4000, buffers=buffers, constants=[], arena_bytes=2 * size + 128, threads=1)
    memories = [program.make_memory() for _ in range(2)]
    events: list[tuple[str, int]] = []

    def work(number):
        events.append(("begins", number))
        program.run(memories[number], 0, program.steps)
        events.append(("ends", number))

    in_threads(2, work)
    assert [name for name, _ in events] == ["begins", "begins", "ends", "ends"]


def test_memories_are_reused_and_never_shared():
    """A plan keeps as many memories as runs have overlapped, not one per run."""
    case = make("chains", 7)
    plan = NativePlan(case.graph, case.chip.name, available_isas()[-1], 2)
    evaluate = evaluator(case.chip)
    for _ in range(5):
        plan.run(case.feeds, evaluate)
    assert len(plan._idle) == 1
    in_threads(3, lambda number: [plan.run(case.feeds, evaluate) for _ in range(20)])
    assert 1 <= len(plan._idle) <= 3
    assert len(set(map(id, plan._idle))) == len(plan._idle)


def test_results_belong_to_the_caller():
    """Not to a memory that the next run writes, and not to an input that leaves unchanged."""
    graph = Graph()
    x = graph.input("x", TensorType(U8, (2000,)))
    graph.output(graph.add(Copy(), x, name="y"))
    session = Session(graph, backend="native")
    given = np.arange(2000).astype(np.uint8)
    first = session.run({"x": given})["y"]
    kept = first.copy()
    second = session.run({"x": given ^ 255})["y"]
    assert (first == kept).all() and (second == kept ^ 255).all()
    first[:] = 0
    assert given[5] == 5


@pytest.mark.parametrize("layout", ["transposed", "strided", "reversed", "read-only", "unaligned"])
def test_operands_of_every_layout(layout):
    """Arrays of the caller need not be contiguous, and stay alive during the run."""
    case = make("conv_v2", 0)
    name, array = case.graph.input_ports[0].name, case.feeds[0]
    if layout == "transposed":
        given = np.ascontiguousarray(array.transpose(3, 2, 1, 0)).transpose(3, 2, 1, 0)
    elif layout == "strided":
        wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
        given = wide[..., ::2]
        given[...] = array
    elif layout == "reversed":
        given = array[..., ::-1].copy()[..., ::-1]
    elif layout == "unaligned":
        given = np.zeros(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
        given[...] = array
    else:
        given = array.copy()
        given.flags.writeable = False

    class Model:
        graph, chip = case.graph, case.chip

    outputs = Session(Model(), backend="native").run({name: given})
    for found, expected in zip(outputs.values(), case.expected, strict=True):
        assert found.tobytes() == expected.tobytes()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_runs_without_its_worker_threads():
    """Worker threads do not exist in a forked child; it must neither wait for them nor end badly."""
    program = """
        import os, sys
        import numpy as np
        from tpuconvert.runtime.session.session import Session
        from tpuconvert.schema.graph.graph import Graph
        from tpuconvert.schema.ops.permute import Permute
        from tpuconvert.schema.types import U8, TensorType
        graph = Graph()
        x = graph.input("x", TensorType(U8, (4, 300, 300)))
        graph.output(graph.add(Permute((0, 2, 1)), x, name="y"))
        session = Session(graph, backend="native", threads=3)
        given = np.random.default_rng(0).integers(0, 256, (4, 300, 300)).astype(np.uint8)
        session.run({"x": given})
        child = os.fork()
        same = (session.run({"x": given})["y"] == given.transpose(0, 2, 1)).all()
        if child:
            _, status = os.waitpid(child, 0)
            sys.exit(os.waitstatus_to_exitcode(status) or not same)
        sys.exit(not same)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], timeout=120, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
