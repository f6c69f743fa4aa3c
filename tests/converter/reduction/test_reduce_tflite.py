"""``tpuconvert.reduce`` on TFLite models: planted failures, parts, constants, names, and files written again."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tflite

import tpuconvert as tc
from tests.support.networks.planted_failures import SECRET, raising_plugin
from tests.support.tflite.models import O, S, Signature, T, serialize
from tpuconvert.conversion.options.options import group_options
from tpuconvert.frontends.tflite.file.reader import ModelFile, read_model
from tpuconvert.frontends.tflite.file.rows import read_rows, write_rows
from tpuconvert.schema.errors import CorruptInputError, UsageError

pytestmark = pytest.mark.usefixtures("own_folder")


@pytest.fixture
def digits(repository: Path) -> Path:
    return repository / "examples" / "digits" / "digits.tflite"


CONV = {"padding": tflite.Padding.SAME, "stride_w": 1, "stride_h": 1, "dilation_w_factor": 1, "dilation_h_factor": 1}
SHAPE = (1, 10, 10, 6)


def network(planted: Sequence[O], length: int = 12) -> S:
    """A chain of convolutions and ReLUs, with other operators in the middle; their second operand is the image."""
    rng = np.random.default_rng(1)
    tensors, operators = [T(f"{SECRET}/image", SHAPE)], []
    last = 0

    def tensor(name: str, **fields: Any) -> int:
        tensors.append(T(f"{SECRET}/{name}", **fields))
        return len(tensors) - 1

    for number in range(length):
        if number == length // 2:
            for index, each in enumerate(planted):
                result = tensor(f"planted{index}", shape=SHAPE)
                operators.append(O(**{**each.__dict__, "inputs": [last, 0][: len(each.inputs)], "outputs": [result]}))
                last = result
            continue
        result = tensor(f"layer{number}", shape=SHAPE)
        if number % 2:
            operators.append(O("RELU", [last], [result]))
        else:
            kernel = tensor(f"kernel{number}", data=rng.normal(size=(6, 3, 3, 6)).astype(np.float32))
            bias = tensor(f"bias{number}", data=rng.normal(size=6).astype(np.float32))
            operators.append(O("CONV_2D", [last, kernel, bias], [result], "Conv2DOptions", CONV))
        last = result
    return S(tensors, operators, [0], [last], SECRET)


def write(name: str, *subgraphs: S, **arguments: Any) -> bytes:
    content = serialize(*subgraphs, **arguments)
    Path(name).write_bytes(content)
    return content


def run(*arguments: str) -> str:
    """Run the command line in a separate process, in which plugins are loaded, and return its output."""
    command = [sys.executable, "-m", "tpuconvert", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def operators_of(path: str | Path) -> list[str]:
    return [operator.name for operator in read_model(path).subgraphs[0].operators]


def float_values(file: ModelFile) -> set[float]:
    """All float constants of more than one element."""
    arrays = [file.data(tensor) for part in file.subgraphs for tensor in part.tensors]
    return {
        float(value)
        for array in arrays
        if array is not None and array.size > 1 and array.dtype.kind == "f"
        for value in array.flat
        if value
    }


CUSTOM = O("CUSTOM:NoSuchOperator", [0], [0])


def test_an_unknown_operator_is_what_remains_of_its_model() -> None:
    before = write("net.tflite", network([CUSTOM]))
    found = tc.reduce("net.tflite", until="error", output="small.tflite")
    assert (found.format, found.before.nodes, found.after.nodes) == ("tflite", 12, 1)
    assert found.operators == {"CUSTOM:NoSuchOperator": 1}
    assert found.kind == "error" and "no TPU operator: CUSTOM:NoSuchOperator" in found.message
    assert found.message == found.reduced_message
    assert found.is_complete and found.names == "generic" and found.kept_weights == 0
    assert list(found.identifying) == ["CUSTOM:NoSuchOperator"]
    assert Path("net.tflite").read_bytes() == before
    content = Path("small.tflite").read_bytes()
    assert SECRET.encode() not in content and len(content) < 1000 and found.model == content
    small = read_model("small.tflite").subgraphs[0]
    assert [tensor.name for tensor in small.tensors] == ["x0", "y0"]
    assert [tensor.shape for tensor in small.tensors] == [(1, 1, 1, 1)] * 2
    with pytest.raises(tc.UnsupportedError, match="NoSuchOperator"):
        tc.check("small.tflite")


def test_an_exception_of_a_converter_is_reduced_to_its_operator() -> None:
    Path("fragile.py").write_text(raising_plugin("tflite", axis=1))
    write("net.tflite", network([O("CUSTOM:Fragile", [0], [0], custom=b"\1\2\3")]))
    text = run("reduce", "net.tflite", "--until", "error", "--plugin", "fragile.py", "-o", "small.tflite")
    assert "12 nodes reduced to 1" in text and "operators: CUSTOM:Fragile" in text and "KeyError" in text
    assert "check before sharing: CUSTOM:Fragile with 3 bytes of options" in text
    assert "tpuconvert reduce small.tflite --until error --plugin fragile.py" in text
    small = read_model("small.tflite").subgraphs[0]
    assert small.tensors[0].shape[1] == 2, "the smallest extent with which it fails"
    assert SECRET.encode() not in Path("small.tflite").read_bytes()


WRONG_RULE = '''
import tpuconvert as tc
from tpuconvert.schema.ops.activation import Active
from tpuconvert.schema.ops.arithmetic import Add


@tc.register_rule(tc.pattern(Active, tc.pattern(Add, "x", "y", name="sum"), name="relu"), stage="canonicalize")
def test_reduce_wrong_tflite_rule(g, m):
    """``relu(x + y) -> x + y``, which is wrong."""
    return g.add(m.sum.op, m.x, m.y)
'''


@pytest.mark.slow
def test_a_wrong_rule_is_reduced_to_the_operators_that_it_rewrites() -> None:
    Path("wrong.py").write_text(WRONG_RULE)
    before = write("net.tflite", network([O("ADD", [0, 0], [0], "AddOptions"), O("RELU", [0], [0])]))
    text = run("reduce", "net.tflite", "--until", "difference", "--plugin", "wrong.py", "-o", "small.tflite")
    assert "13 nodes reduced to 2" in text and "operators: ADD, RELU" in text and "stage optimize" in text
    assert "tpuconvert reduce small.tflite --until difference --plugin wrong.py" in text
    small = read_model("small.tflite").subgraphs[0]
    assert [tensor.shape for tensor in small.tensors if tensor.index in small.inputs] == [(1, 1, 1, 1)] * 2
    assert Path("net.tflite").read_bytes() == before


def test_a_function_decides_and_weights_are_random(digits: Path) -> None:
    def fails(path: str) -> bool:
        assert path.endswith(".tflite")
        kinds = operators_of(path)
        return kinds.count("CONV_2D") >= 2 and "MAX_POOL_2D" in kinds

    found = tc.reduce(digits, until=fails)
    assert found.operators == {"CONV_2D": 2, "MAX_POOL_2D": 1}
    assert found.kept_weights == 0 and found.output is None
    found.save("small.tflite")
    assert fails("small.tflite")
    left = float_values(read_model("small.tflite"))
    assert not left & float_values(read_model(digits))
    tc.check("small.tflite")


def quantized_network() -> S:
    """A convolution with scales per channel, and an operator that is unknown."""
    rng = np.random.default_rng(2)
    scales = rng.uniform(0.01, 0.02, 6).astype(np.float32)
    return S(
        [
            T("x", SHAPE, "INT8", scale=[0.5], zero_point=[3]),
            T(
                "w",
                data=rng.integers(-127, 128, (6, 3, 3, 6)).astype(np.int8),
                scale=scales.tolist(),
                zero_point=[0] * 6,
            ),
            T("b", data=rng.integers(-99, 99, 6).astype(np.int32), scale=(scales * 0.5).tolist(), zero_point=[0] * 6),
            T("h", SHAPE, "INT8", scale=[0.25], zero_point=[-4]),
            T("y", SHAPE, "INT8", scale=[0.25], zero_point=[-4]),
        ],
        [O("CONV_2D", [0, 1, 2], [3], "Conv2DOptions", CONV), O("RELU", [3], [4])],
        [0],
        [4],
    )


def test_quantized_weights_and_their_scales_are_replaced() -> None:
    write("net.tflite", quantized_network())
    source = read_model("net.tflite")

    def fails(path: str) -> bool:
        tc.check(path)  # what remains is a valid model
        return operators_of(path) == ["CONV_2D", "RELU"]

    found = tc.reduce("net.tflite", until=fails, output="small.tflite")
    assert found.kept_weights == 0
    small = read_model("small.tflite")
    constants = [[tensor for tensor in file.subgraphs[0].tensors if tensor.buffer] for file in (source, small)]
    old, new = ({scale for each in tensors for scale in each.quantization.scale} for tensors in constants)
    assert new and not new & old
    assert all(len(set(tensor.quantization.scale)) == 1 for tensor in constants[1])
    kept = [
        [tensor.quantization for tensor in file.subgraphs[0].tensors if not tensor.buffer] for file in (source, small)
    ]
    assert kept[0] == kept[1], "a scale per tensor is kept"


def test_options_that_name_tensors_are_applied_to_the_model() -> None:
    subgraph = network([CUSTOM])
    signature = Signature("serve", [("image", 0)], [("scores", subgraph.outputs[0])])
    write("net.tflite", subgraph, signatures=[signature])
    found = tc.reduce(
        "net.tflite",
        until="error",
        source_options=tc.SourceOptions(
            signature="serve", input_shapes={"image": (1, 6, 6, 6)}, outputs=[f"{SECRET}/layer8"]
        ),
    )
    assert found.operators == {"CUSTOM:NoSuchOperator": 1} and found.options == {}


def test_a_called_subgraph_stays_with_its_operator() -> None:
    branches = [
        S([T("a", (1, 4)), T("b", (1, 4))], [O(name, [0], [1])], [0], [1], f"{SECRET}{name}")
        for name in ("RELU", "CUSTOM:NoSuchOperator")
    ]
    unused = S([T("u", (1, 4)), T("v", (1, 4))], [O("TANH", [0], [1])], [0], [1], SECRET)
    options = {"then_subgraph_index": 2, "else_subgraph_index": 3}
    main = S(
        [T("c", (1,), "BOOL"), T("x", (1, 4)), T("h", (1, 4)), T("y", (1, 4))],
        [O("TANH", [1], [2]), O("IF", [0, 2], [3], "IfOptions", options)],
        [0, 1],
        [3],
        SECRET,
    )
    write("net.tflite", main, unused, *branches)
    found = tc.reduce("net.tflite", until="error", output="small.tflite")
    assert found.operators == {"IF": 1} and found.message == found.reduced_message
    assert [len(part.operators) for part in read_model("small.tflite").subgraphs] == [1, 1, 1]
    assert SECRET.encode() not in Path("small.tflite").read_bytes()


def test_the_search_continues_from_the_smaller_model(digits: Path) -> None:
    sizes: list[int] = []

    def fails(path: str) -> bool:
        if Path("small.tflite").exists():
            sizes.append(len(operators_of("small.tflite")))
        if len(sizes) == 3 and not Path("interrupted").exists():
            Path("interrupted").touch()
            raise KeyboardInterrupt
        return "SOFTMAX" in operators_of(path)

    with pytest.raises(KeyboardInterrupt):
        tc.reduce(digits, until=fails, output="small.tflite")
    between = len(operators_of("small.tflite"))
    found = tc.reduce(digits, until=fails, output="small.tflite", resume=True)
    assert found.operators == {"SOFTMAX": 1}
    assert sizes[3] == between


# Files


@pytest.mark.parametrize("external", [False, True])
def test_a_file_written_again_is_the_same_model(external: bool, digits: Path) -> None:
    write("chain.tflite", network([O("ADD", [0, 0], [0], "AddOptions")]), external=external)
    write("quantized.tflite", quantized_network(), external=external)
    for path in ("chain.tflite", "quantized.tflite", digits):
        file = read_model(path)
        content = write_rows(read_rows(file))
        Path("again.tflite").write_bytes(content)
        again = read_model("again.tflite")
        assert write_rows(read_rows(again)) == content
        for old, new in zip(file.subgraphs, again.subgraphs, strict=True):
            assert [each.quantization for each in old.tensors] == [each.quantization for each in new.tensors]
            assert (old.inputs, old.outputs, old.name) == (new.inputs, new.outputs, new.name)
            for one, other in zip(old.tensors, new.tensors, strict=True):
                assert (one.name, one.type, one.shape) == (other.name, other.type, other.shape)
                np.testing.assert_array_equal(file.data(one), again.data(other))  # type: ignore[arg-type]  # or None
            for one, other in zip(old.operators, new.operators, strict=True):
                assert (one.name, one.version, one.inputs, one.outputs) == (
                    other.name, other.version, other.inputs, other.outputs,
                )  # fmt: skip
                assert (one.options.table, list(one.options.unread())) == (
                    other.options.table, list(other.options.unread()),
                )  # fmt: skip
        for index in range(len(again.subgraphs[0].tensors)):
            raw = again.buffer(again.subgraphs[0].tensors[index].buffer)
            if raw is not None:
                start = np.frombuffer(raw, np.uint8).ctypes.data - np.frombuffer(again.view, np.uint8).ctypes.data
                assert start % 16 == 0, "kernels of TFLite require aligned constants"


# Wrong calls


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "does not fail"),
        ({"weights": "weights.caffemodel"}, "a second file belongs to Caffe models only"),
        ({"output": "net.tflite"}, "would be replaced"),
        ({"signature": "absent"}, "there is no signature 'absent'"),
    ],
)
def test_wrong_calls(arguments: dict[str, Any], message: str) -> None:
    before = write("net.tflite", network([O("RELU", [0], [0])]))
    Path("weights.caffemodel").write_bytes(b"")
    with pytest.raises(UsageError, match=message):
        tc.reduce("net.tflite", **group_options(**arguments))
    assert Path("net.tflite").read_bytes() == before
    assert sorted(each.name for each in Path().iterdir()) == ["net.tflite", "weights.caffemodel"]


def test_a_damaged_file_is_one_error() -> None:
    content = write("net.tflite", network([CUSTOM]))
    Path("net.tflite").write_bytes(content[: len(content) // 2])
    with pytest.raises(CorruptInputError, match=r"net\.tflite"):
        tc.reduce("net.tflite", until="error", output="small.tflite")
    assert not Path("small.tflite").exists()
