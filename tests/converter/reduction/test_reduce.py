"""``tpuconvert.reduce``: searches, parts of models, random weights, generic names, trials and whole reductions."""

import importlib
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tpuconvert as tc
from tests.support.networks.planted_failures import SECRET
from tpuconvert.conversion.options.options import group_options
from tpuconvert.reduction import onnx_constants as constants
from tpuconvert.reduction.failure import CRASH, TIMEOUT, failures_of, message_pattern
from tpuconvert.reduction.onnx_names import identifying_texts, with_generic_names, without_descriptions
from tpuconvert.reduction.onnx_parts import TensorInfo, extract
from tpuconvert.reduction.onnx_types import find_constants, infer_types
from tpuconvert.reduction.search import largest_change, minimize, smallest_end
from tpuconvert.reduction.worker import Worker, WorkerDiedError
from tpuconvert.schema.errors import CorruptInputError, UsageError

pytestmark = pytest.mark.usefixtures("own_folder")


@pytest.fixture
def digits(repository: Path) -> Path:
    return repository / "examples" / "digits" / "digits.onnx"


def network(planted: str = "NoSuchOperator", length: int = 12, weights: Any = None) -> onnx.ModelProto:
    """A chain of convolutions and ReLUs with one other node in the middle, names and descriptions of a customer."""
    rng = np.random.default_rng(1)
    nodes, tensors, last = [], [], f"{SECRET}/image"
    for number in range(length):
        name = f"{SECRET}/layer{number}"
        if number == length // 2:
            nodes.append(helper.make_node(planted, [last], [name], f"{SECRET}.planted", doc_string=SECRET))
        elif number % 2:
            nodes.append(helper.make_node("Relu", [last], [name], f"{SECRET}.relu{number}"))
        else:
            kernel = rng.normal(size=(6, 6, 3, 3)).astype(np.float32) if weights is None else weights
            tensors.append(numpy_helper.from_array(kernel, f"{SECRET}.weights{number}"))
            nodes.append(helper.make_node("Conv", [last, tensors[-1].name], [name], pads=[1, 1, 1, 1]))
        last = name
    x = helper.make_tensor_value_info(f"{SECRET}/image", TensorProto.FLOAT, [1, 6, 10, 10])
    y = helper.make_tensor_value_info(last, TensorProto.FLOAT, [1, 6, 10, 10])
    graph = helper.make_graph(nodes, SECRET, [x], [y], tensors, doc_string=SECRET)
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name=SECRET, doc_string=SECRET
    )
    helper.set_model_props(model, {"owner": SECRET})
    return model


# Searches


@pytest.mark.parametrize("seed", range(50))
def test_minimize_finds_a_set_from_which_nothing_can_be_removed(seed: int) -> None:
    draw = random.Random(seed)
    items = list(range(draw.randint(1, 60)))
    needed = set(draw.sample(items, draw.randint(1, min(5, len(items)))))
    trials: list[list[int]] = []

    def test(kept: list[int]) -> bool:
        trials.append(kept)
        return needed <= set(kept)

    assert minimize(items, test) == sorted(needed)
    assert all(trials), "no empty list is tried"


@pytest.mark.parametrize("wanted", [1, 2, 7, 31, 32, 100])
def test_smallest_end_is_found_in_a_logarithmic_number_of_trials(wanted: int) -> None:
    trials = []
    assert smallest_end(100, lambda end: trials.append(end) or end >= wanted) == wanted  # type: ignore[func-returns-value]
    assert len(trials) <= 7


def test_largest_change_leaves_only_the_items_that_do_not_change() -> None:
    assert largest_change(list(range(20)), lambda chosen: not {3, 11} & set(chosen)) == [
        item for item in range(20) if item not in (3, 11)
    ]


# Failures


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("input 'a/b' has shape [1, 3, 8]", "input 'x0' has shape [1, 1, 1]"),
        ("difference 1.5e-3 is above 1e-4", "difference 0.25 is above 3"),
        ("needs 12 bytes", "needs 7 bytes"),
        ("shape [batch, 3, (n+1)/2], expected 4 axes", "shape [d0, 1, d1], expected 4 axes"),
    ],
)
def test_names_and_numbers_are_no_part_of_a_pattern(one: str, other: str) -> None:
    assert message_pattern(one) == message_pattern(other)


def test_words_with_digits_are_part_of_a_pattern() -> None:
    assert message_pattern("type INT8") != message_pattern("type INT16")


def test_internal_errors_are_compared_by_type_and_function() -> None:
    def raised(text: str) -> Exception:
        try:
            raise KeyError(text)
        except KeyError as error:
            return error

    assert failures_of(raised("a"))[0].is_alike(failures_of(raised("b"))[0])
    assert not failures_of(raised("a"))[0].is_alike(failures_of(ValueError("a"))[0])
    assert not failures_of(CorruptInputError("a"))[0].is_alike(failures_of(UsageError("a"))[0])


# Parts of models


def test_types_of_a_part_are_those_of_the_model() -> None:
    model = network("Sigmoid")
    types = infer_types(model.SerializeToString())
    part = extract(model, [5, 6], types)
    assert part is not None
    assert [node.op_type for node in part.graph.node] == ["Relu", "Sigmoid"]
    assert [TensorInfo.from_proto(info) for info in part.graph.input] == [TensorInfo(1, (1, 6, 10, 10))]
    onnx.checker.check_model(part, full_check=True)


def test_a_part_that_begins_at_a_tensor_of_unknown_type_is_no_candidate() -> None:
    assert extract(network(), [9], {}) is None


def test_computed_shapes_are_constants() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "two"], ["width"]),
        helper.make_node("Relu", ["x"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 7])
    graph = helper.make_graph(
        nodes, "g", [x], [helper.make_tensor_value_info("y", 1, None)], [numpy_helper.from_array(np.array([2]), "two")]
    )
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()
    found = find_constants(content, infer_types(content))
    assert {name: array.tolist() for name, (_, array) in found.items()} == {"shape": [1, 2, 7], "width": [7]}


# Weights and names


@pytest.mark.parametrize("seed", range(20))
def test_random_weights_keep_type_shape_range_signs_and_zeros(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for dtype in (np.float32, np.float16, np.float64, np.int8, np.uint8, np.int64):
        array = (
            (rng.normal(size=(5, 7, 3)) * 30).astype(dtype)
            if dtype != np.uint8
            else rng.integers(0, 255, (5, 7, 3), dtype)
        )
        if array.dtype.kind == "f":
            array[rng.random(array.shape) < 0.2] = 0
        found = constants.random_like(array, np.random.default_rng(seed + 1))
        assert found.dtype == array.dtype and found.shape == array.shape
        assert found.min() >= array.min() and found.max() <= array.max()
        assert not np.array_equal(found, array)
        if array.dtype.kind == "f":
            for sign in (-1, 0, 1):
                assert np.count_nonzero(np.sign(found) == sign) == np.count_nonzero(np.sign(array) == sign)


def test_no_text_of_the_source_remains() -> None:
    model = network()
    inner = helper.make_graph(
        [helper.make_node("Relu", [f"{SECRET}/image"], [f"{SECRET}.inner"], f"{SECRET}.node", doc_string=SECRET)],
        SECRET,
        [],
        [helper.make_tensor_value_info(f"{SECRET}.inner", 1, None)],
        doc_string=SECRET,
    )
    model.graph.node.append(
        helper.make_node("If", [f"{SECRET}.flag"], [f"{SECRET}.if"], then_branch=inner, else_branch=inner)
    )
    function = helper.make_function(
        SECRET, f"{SECRET}.function", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"], SECRET)], []
    )
    model.functions.append(function)
    model.graph.node.append(helper.make_node(f"{SECRET}.function", [f"{SECRET}.if"], [f"{SECRET}.z"], domain=SECRET))
    model.opset_import.append(helper.make_opsetid(SECRET, 1))
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = SECRET
    changed = with_generic_names(without_descriptions(model))
    assert SECRET.encode() not in changed.SerializeToString()
    assert len(changed.graph.node) == len(model.graph.node)
    assert identifying_texts(changed) == []


def test_custom_operators_are_reported() -> None:
    model = network()
    model.graph.node.append(helper.make_node("Secret", ["a"], ["b"], domain="com.acme", mode="text"))
    assert identifying_texts(model) == ["com.acme:Secret", "mode=text"]


# The process for trials


FUNCTIONS = """
import os
from tpuconvert.schema.errors import UsageError


def crash(signal):
    os.kill(os.getpid(), signal)


def answer(value):
    if value < 0:
        raise UsageError("negative", hint="positive")
    return value
"""


def test_the_process_survives_errors_and_is_started_again_after_a_crash(
    own_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = own_folder / "functions"  # the current folder itself is not searched
    folder.mkdir()
    (folder / "worker_functions.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    functions = importlib.import_module("worker_functions")
    with Worker([]) as worker:
        assert worker.call(functions.answer, 3, seconds=60) == 3
        with pytest.raises(UsageError, match="negative") as caught:
            worker.call(functions.answer, -1, seconds=60)
        assert caught.value.hint == "positive"
        with pytest.raises(WorkerDiedError) as ended:
            worker.call(functions.crash, 11, seconds=60)
        assert (ended.value.failure.kind, ended.value.failure.pattern) == (CRASH, "SIGSEGV")
        assert worker.call(functions.answer, 4, seconds=60) == 4
        with pytest.raises(WorkerDiedError) as late:
            worker.call(time.sleep, 600, seconds=0.1)
        assert late.value.failure.kind == TIMEOUT
        assert worker.call(functions.answer, 5, seconds=60) == 5


# Reductions


def test_an_unknown_operator_is_what_remains_of_its_model() -> None:
    onnx.save(network(), "net.onnx")
    before = Path("net.onnx").read_bytes()
    found = tc.reduce("net.onnx", until="error", output="small.onnx")
    assert (found.before.nodes, found.after.nodes) == (12, 1)
    assert found.operators == {"NoSuchOperator": 1}
    assert found.kind == "error" and "no TPU operator: NoSuchOperator" in found.message
    assert found.is_complete and found.names == "generic"
    assert Path("net.onnx").read_bytes() == before
    assert SECRET.encode() not in Path("small.onnx").read_bytes()
    with pytest.raises(tc.UnsupportedError, match="NoSuchOperator"):
        tc.check("small.onnx")


WRONG_RULE = '''
import tpuconvert as tc
from tpuconvert.schema.ops.activation import Active
from tpuconvert.schema.ops.arithmetic import Add


@tc.register_rule(tc.pattern(Active, tc.pattern(Add, "x", "y", name="sum"), name="relu"), stage="canonicalize")
def test_reduce_wrong_rule(g, m):
    """``relu(x + y) -> x + y``, which is wrong."""
    return g.add(m.sum.op, m.x, m.y)
'''


def run(*arguments: str) -> str:
    """Run the command line in a separate process, in which plugins are loaded, and return its output."""
    command = [sys.executable, "-m", "tpuconvert", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_wrong_rule_is_reduced_to_the_nodes_that_it_rewrites(digits: Path) -> None:
    Path("wrong.py").write_text(WRONG_RULE)
    text = run("reduce", str(digits), "--until", "difference", "--plugin", "wrong.py", "-o", "small.onnx")
    assert "17 nodes reduced to 2" in text and "operators: Add, Relu" in text and "stage optimize" in text
    assert "tpuconvert reduce small.onnx --until difference --plugin wrong.py" in text
    model = onnx.load("small.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert [[dim.dim_value for dim in info.type.tensor_type.shape.dim] for info in model.graph.input] == [[1] * 4] * 2


def test_a_function_decides(digits: Path) -> None:
    def fails(path: str) -> bool:
        kinds = [node.op_type for node in onnx.load(path).graph.node]
        return kinds.count("Conv") >= 2 and "MaxPool" in kinds

    found = tc.reduce(digits, until=fails)
    assert found.operators == {"Conv": 2, "MaxPool": 1}
    assert found.kept_weights == 0
    values = {
        float(value) for tensor in onnx.load(digits).graph.initializer for value in numpy_helper.to_array(tensor).flat
    }
    left = {float(value) for tensor in found.model.graph.initializer for value in numpy_helper.to_array(tensor).flat}
    assert left and not left & values
    assert found.model.graph.node and found.output is None
    found.save("small.onnx")
    assert fails("small.onnx")


def test_weights_on_which_the_failure_depends_are_kept_and_reported() -> None:
    wanted = np.zeros((6, 6, 3, 3), np.float32)
    wanted[0, 0] = np.arange(9).reshape(3, 3)
    model = network("Sigmoid", 4, wanted)

    def fails(path: str) -> bool:
        arrays = [numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer]
        return any(np.array_equal(array[:1, :1, :1], wanted[:1, :1, :1]) and array.any() for array in arrays)

    found = tc.reduce(model, until=fails)
    assert found.kept_weights == 1
    assert "1 constant with the original values, because the failure depends on them" in str(found)


def test_commands_and_functions_of_files_decide(digits: Path) -> None:
    Path("check.py").write_text(
        "import sys\n"
        "from pathlib import Path\n"
        "def fails(path):\n"
        "    return b'Flatten' in Path(path).read_bytes()\n"
        "if __name__ == '__main__':\n"
        "    sys.exit(0 if fails(sys.argv[1]) else 1)\n"
    )
    for until in ("check.py:fails", f"{sys.executable} check.py {{}}"):
        found = tc.reduce(digits, until=until)
        assert found.operators == {"Flatten": 1}
        assert found.until == until


@pytest.mark.slow
def test_a_crash_is_a_failure() -> None:
    onnx.save(network("Tanh", 2), "net.onnx")  # few trials: the process is started again after each crash
    Path("crash.py").write_text(
        "import os, onnx\n"
        "def fails(path):\n"
        "    if any(node.op_type == 'Tanh' for node in onnx.load(path).graph.node):\n"
        "        os.abort()\n"
    )
    found = tc.reduce("net.onnx", until="crash.py:fails")
    assert (found.kind, found.message) == ("crash", "the process ended by SIGABRT")
    assert found.operators == {"Tanh": 1}


def test_the_smallest_model_so_far_is_in_the_file_and_a_search_is_continued(digits: Path) -> None:
    sizes = []

    def fails(path: str) -> bool:
        nodes = onnx.load(path).graph.node
        if Path("small.onnx").exists():
            sizes.append(len(onnx.load("small.onnx").graph.node))
        if len(sizes) == 3 and not Path("interrupted").exists():
            Path("interrupted").touch()
            raise KeyboardInterrupt
        return any(node.op_type == "Flatten" for node in nodes)

    with pytest.raises(KeyboardInterrupt):
        tc.reduce(digits, until=fails, output="small.onnx")
    between = len(onnx.load("small.onnx").graph.node)
    assert 1 < between < 17
    found = tc.reduce(digits, until=fails, output="small.onnx", resume=True)
    assert found.after.nodes == 1 and found.before.nodes == 17
    assert sizes[3] == between, "the second search begins with the smaller model"


def test_names_and_weights_are_removed_after_the_budget() -> None:
    model = network("Sigmoid")
    found = tc.reduce(model, until=lambda path: bool(onnx.load(path).graph.node), budget="0.001s")
    assert not found.is_complete and found.names == "generic" and found.kept_weights == 0
    assert SECRET.encode() not in found.model.SerializeToString()
    assert "--resume with a larger --budget" in str(found)


def test_options_that_name_tensors_are_applied_to_the_model() -> None:
    model = network()
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "height"
    onnx.save(model, "net.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    found = tc.reduce(
        "net.onnx",
        until="error",
        source_options=tc.SourceOptions(input_shapes={f"{SECRET}/image": (1, 6, 10, 10)}, outputs=[f"{SECRET}/layer8"]),
        chip="bm1684",
    )
    assert found.operators == {"NoSuchOperator": 1}
    assert found.options == {}, "the failure needs no option"


def test_one_of_several_failures_is_chosen() -> None:
    model = network()
    model.graph.node[1].op_type = "AnotherOperator"
    for match, operator in ((None, "AnotherOperator"), ("NoSuch", "NoSuchOperator")):
        assert tc.reduce(model, until="error", match=match).operators == {operator: 1}
    with pytest.raises(UsageError, match="no failure matches") as caught:
        tc.reduce(model, until="error", match="absent")
    assert "NoSuchOperator" in caught.value.hint


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "does not fail"),
        ({"until": "sometimes"}, "which is not a failure"),
        ({"until": "absent_module:function"}, "cannot be imported"),
        ({"match": "("}, "is not a regular expression"),
        ({"budget": "soon"}, "is not a duration"),
        ({"output": "net.onnx"}, "would be replaced"),
    ],
)
def test_wrong_calls(arguments: dict[str, Any], message: str) -> None:
    onnx.save(network("Sigmoid"), "net.onnx")
    before = Path("net.onnx").read_bytes()
    with pytest.raises(UsageError, match=message):
        tc.reduce("net.onnx", **group_options(**arguments))
    assert Path("net.onnx").read_bytes() == before
