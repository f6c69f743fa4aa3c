"""``tpuconvert.reduce`` on Caffe networks: planted failures, parts, weights, names, and files written again."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.caffe.networks import layer, with_input, write_weights
from tests.support.networks.planted_failures import SECRET, raising_plugin
from tpuconvert.conversion.options.options import group_options
from tpuconvert.frontends.caffe.file.description import read_description
from tpuconvert.frontends.caffe.file.text_writer import format_message
from tpuconvert.frontends.caffe.file.weights import read_weights
from tpuconvert.reduction.caffe_network import load_network, network_files
from tpuconvert.schema.errors import CorruptInputError, UsageError

pytestmark = pytest.mark.usefixtures("own_folder")


@pytest.fixture
def digits(repository: Path) -> tuple[Path, Path]:
    folder = repository / "examples" / "digits"
    return folder / "digits.prototxt", folder / "digits.caffemodel"


CONV = 'convolution_param { num_output: 6 kernel_size: 3 pad: 1 weight_filler { type: "xavier" } }'


def network(planted: str, length: int = 12) -> tuple[str, dict[str, list[np.ndarray]]]:
    """A chain of convolutions and ReLUs in place with other layers in the middle; blobs of the convolutions.

    Args:
        planted: text of layers that read the blob ``BEFORE`` and make the blob ``AFTER``.
        length: number of layers in the chain.

    """
    rng = np.random.default_rng(1)
    text = f'name: "{SECRET}"\n' + with_input((1, 6, 10, 10), "").replace('"x"', f'"{SECRET}/image"')
    blobs, last = {}, f"{SECRET}/image"
    for number in range(length):
        name = f"{SECRET}/layer{number}"
        if number == length // 2:
            text += planted.replace("BEFORE", last).replace("AFTER", name)
            last = name
        elif number % 2:
            text += layer("ReLU", "", last, last, name)
        else:
            blobs[name] = [rng.normal(size=(6, 6, 3, 3)), rng.normal(size=6)]
            text += layer("Convolution", CONV, last, name, name)
            last = name
    return text, blobs


def write(planted: str, folder: Path = Path()) -> dict[str, bytes]:
    text, blobs = network(planted)
    (folder / "net.prototxt").write_text(text)
    write_weights(folder, blobs)
    return {name: (folder / name).read_bytes() for name in ("net.prototxt", "net.caffemodel")}


def run(*arguments: str) -> str:
    """Run the command line in a separate process, in which plugins are loaded, and return its output."""
    command = [sys.executable, "-m", "tpuconvert", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def types_of(path: str | Path) -> list[str]:
    return [each.message.type for each in read_description(path).layers if each.message.type != "Input"]


UNKNOWN = layer(
    "NoSuchLayer", f'secret_param {{ mode: FAST path: "{SECRET}" }}', "BEFORE", "AFTER", f"{SECRET}/planted"
)


def test_an_unknown_layer_is_what_remains_of_its_network() -> None:
    before = write(UNKNOWN)
    found = tc.reduce("net.prototxt", "net.caffemodel", until="error", output="small.prototxt")
    assert (found.format, found.before.nodes, found.after.nodes) == ("caffe", 12, 1)
    assert found.operators == {"NoSuchLayer": 1}
    assert found.kind == "error" and "no TPU operator: NoSuchLayer" in found.message
    assert found.message == found.reduced_message
    assert found.is_complete and found.names == "generic"
    assert list(found.identifying) == ["NoSuchLayer"]
    assert {name: Path(name).read_bytes() for name in before} == before
    text = Path("small.prototxt").read_text()
    assert SECRET not in text and found.model == text.encode()
    assert found.weights is None and found.weights_output is None and not Path("small.caffemodel").exists()
    net = read_description("small.prototxt")
    assert [each.message.name for each in net.layers] == ["x0", "n0"]
    assert list(net.layers[0].message.input_param.shape[0].dim) == [1, 1, 1, 1]
    with pytest.raises(tc.UnsupportedError, match="NoSuchLayer"):
        tc.check("small.prototxt")


def test_an_exception_of_a_converter_is_reduced_to_its_layer() -> None:
    Path("fragile.py").write_text(raising_plugin("caffe", axis=2))
    write(layer("Fragile", "", "BEFORE", "AFTER", f"{SECRET}/planted"))
    text = run("reduce", "net.prototxt", "net.caffemodel", "--until", "error", "--plugin", "fragile.py")
    assert "12 nodes reduced to 1" in text and "operators: Fragile" in text and "KeyError" in text
    assert "wrote net.reduced.prototxt\n" in text
    assert "tpuconvert reduce net.reduced.prototxt --until error --plugin fragile.py" in text
    net = read_description("net.reduced.prototxt")
    assert list(net.layers[0].message.input_param.shape[0].dim)[2] == 2, "the smallest extent with which it fails"
    assert SECRET not in Path("net.reduced.prototxt").read_text()


WRONG_RULE = '''
import tpuconvert as tc
from tpuconvert.schema.ops.activation import Active
from tpuconvert.schema.ops.convolution.conv import Conv


@tc.register_rule(tc.pattern(Active, tc.pattern(Conv, "x", "w", "b", name="conv"), name="relu"), stage="canonicalize")
def test_reduce_wrong_caffe_rule(g, m):
    """``relu(conv(x)) -> conv(x)``, which is wrong."""
    return g.add(m.conv.op, m.x, m.w, m.b)
'''


@pytest.mark.slow
def test_a_wrong_rule_is_reduced_to_the_layers_that_it_rewrites() -> None:
    Path("wrong.py").write_text(WRONG_RULE)
    before = write(layer("TanH", "", "BEFORE", "AFTER", f"{SECRET}/planted"))
    old = read_weights("net.caffemodel")
    text = run(
        "reduce", "net.prototxt", "net.caffemodel", "--until", "difference", "--plugin", "wrong.py", "-o",
        "small.prototxt",
    )  # fmt: skip
    assert "12 nodes reduced to 2" in text and "operators: Convolution, ReLU" in text and "stage optimize" in text
    assert "wrote small.prototxt and small.caffemodel" in text
    assert "tpuconvert reduce small.prototxt small.caffemodel --until difference --plugin wrong.py" in text
    assert {name: Path(name).read_bytes() for name in before} == before
    new = read_weights("small.caffemodel")
    assert list(new) == ["n0"]
    values = {float(value) for blobs in old.values() for blob in blobs for value in blob.data.flat}
    assert not values & {float(value) for blob in new["n0"] for value in blob.data.flat if blob.data.size > 1}
    for name in ("small.prototxt", "small.caffemodel"):
        assert SECRET.encode() not in Path(name).read_bytes()
        assert b"xavier" not in Path(name).read_bytes(), "fillers of a training are not needed"
    again = run(
        "reduce", "small.prototxt", "small.caffemodel", "--until", "difference", "--plugin", "wrong.py", "-o",
        "again.prototxt",
    )  # fmt: skip
    assert "2 nodes reduced to 2" in again


def test_a_function_decides_and_weights_are_random(digits: tuple[Path, Path]) -> None:
    def fails(path: str) -> bool:
        weights = read_weights(Path(path).with_suffix(".caffemodel"))  # beside the prototxt, with the same name
        kinds = types_of(path)
        return kinds.count("Convolution") >= 2 and "Pooling" in kinds and len(weights) >= 2

    found = tc.reduce(*digits, until=fails)
    assert found.operators == {"Convolution": 2, "Pooling": 1}
    assert found.kept_weights == 0 and found.output is None
    found.save("small.prototxt")
    assert fails("small.prototxt")
    old, new = (
        {float(value) for blobs in read_weights(path).values() for blob in blobs for value in blob.data.flat}
        for path in (digits[1], "small.caffemodel")
    )
    assert new and not new & old
    assert isinstance(found.model, bytes)
    tc.check(found.model, found.weights)


def test_a_command_decides(digits: tuple[Path, Path]) -> None:
    Path("check.py").write_text(
        "import pathlib, sys\n"
        "path = pathlib.Path(sys.argv[1])\n"
        "sys.exit(0 if 'Softmax' in path.read_text() and path.with_suffix('.caffemodel').exists() else 1)\n"
    )
    found = tc.reduce(*digits, until=f"{sys.executable} check.py {{}}")
    assert found.operators == {"Softmax": 1}


def test_weights_in_the_prototxt_are_written_to_a_caffemodel() -> None:
    text, blobs = network(layer("TanH", "", "BEFORE", "AFTER"), 4)
    for name, (kernel, bias) in blobs.items():
        inside = "".join(
            f"blobs {{ shape {{ {' '.join(f'dim: {extent}' for extent in array.shape)} }} "
            f"data: [{', '.join(map(str, array.astype(np.float32).flat))}] }}"
            for array in (kernel, bias)
        )
        text = text.replace(f'name: "{name}" type: "Convolution"', f'name: "{name}" type: "Convolution" {inside}')
    Path("net.prototxt").write_text(text)
    found = tc.reduce(
        "net.prototxt", until=lambda path: "Convolution" in types_of(path) and bool(tc.check(path)), output="s.prototxt"
    )
    assert found.operators == {"Convolution": 1} and "blobs" not in Path("s.prototxt").read_text()
    assert len(read_weights("s.caffemodel")["n0"]) == 2


def test_options_that_name_blobs_are_applied_to_the_network() -> None:
    write(UNKNOWN)
    text = Path("net.prototxt").read_text().replace("input_param { shape { dim: 1 dim: 6 dim: 10 dim: 10 } }", "")
    Path("net.prototxt").write_text(text)
    found = tc.reduce(
        "net.prototxt",
        "net.caffemodel",
        until="error",
        source_options=tc.SourceOptions(input_shapes={f"{SECRET}/image": (1, 6, 8, 8)}, outputs=[f"{SECRET}/layer8"]),
    )
    assert found.operators == {"NoSuchLayer": 1} and found.options == {}


@pytest.mark.slow  # the search of all formats; TFLite continues in every run
def test_the_search_continues_from_the_smaller_network(digits: tuple[Path, Path]) -> None:
    sizes: list[int] = []

    def fails(path: str) -> bool:
        if Path("small.prototxt").exists():
            sizes.append(len(types_of("small.prototxt")))
        if len(sizes) == 3 and not Path("interrupted").exists():
            Path("interrupted").touch()
            raise KeyboardInterrupt
        return "Softmax" in types_of(path)

    with pytest.raises(KeyboardInterrupt):
        tc.reduce(*digits, until=fails, output="small.prototxt")
    between = len(types_of("small.prototxt"))
    found = tc.reduce(*digits, until=fails, output="small.prototxt", resume=True)
    assert found.operators == {"Softmax": 1}
    assert sizes[3] == between


# Files


def test_a_network_written_again_computes_the_same(digits: tuple[Path, Path]) -> None:
    write(layer("TanH", "", "BEFORE", "AFTER"))
    for prototxt, caffemodel in (digits, (Path("net.prototxt"), Path("net.caffemodel"))):
        files = network_files(load_network(str(prototxt), str(caffemodel)))
        wanted, got = tc.convert(prototxt, caffemodel), tc.convert(files.model, files.weights)
        feeds = {
            port.name: np.random.default_rng(3).normal(size=port.shape).astype(np.float32)
            for port in wanted.graph.input_ports
        }
        with tc.Session(wanted) as first, tc.Session(got) as second:
            for one, other in zip(first.run(feeds).values(), second.run(feeds).values(), strict=True):
                np.testing.assert_array_equal(one, other)


def test_fields_of_forks_are_written_with_their_values() -> None:
    text = layer(
        "Forked",
        'convolution_param { num_output: 3 depth: 2 } extra { size: -1.5 size: 2 name: "a\\"b\\\\\\n" on: true '
        "inner { kind: FAST } } extra { } count: 7",
    )
    Path("net.prototxt").write_text(with_input((1, 3, 4, 4), text))
    first = read_description("net.prototxt").layers[-1]
    lines = ["layer {", *format_message(first.message, first.unknown, "  "), "}"]
    Path("again.prototxt").write_text(with_input((1, 3, 4, 4), "\n".join(lines)))
    second = read_description("again.prototxt").layers[-1]
    assert second.message == first.message
    assert [(each.path, each.value) for each in second.unknown] == [(each.path, each.value) for each in first.unknown]


@pytest.mark.parametrize("seed", range(20))
def test_numbers_are_written_exactly(seed: int) -> None:
    number = np.random.default_rng(seed).normal() * 10.0 ** (seed - 10)
    text = with_input((1, 3, 4, 4), layer("Power", f"power_param {{ power: {number!r} shift: 1e-30 scale: inf }}"))
    Path("net.prototxt").write_text(text)
    first = read_description("net.prototxt").layers[-1].message
    Path("again.prototxt").write_text("layer {\n" + "\n".join(format_message(first)) + "\n}")
    assert read_description("again.prototxt").layers[-1].message == first


# Wrong calls


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ((["net.prototxt", "net.caffemodel"], {}), "does not fail"),
        ((["net.prototxt", "net.caffemodel"], {"output": "net.prototxt"}), "would be replaced"),
        ((["net.prototxt", "net.caffemodel"], {"output": "net.txt"}), "would be replaced"),
        ((["net.prototxt", "net.caffemodel"], {"output": "out.caffemodel"}), "expected the name of a prototxt"),
        ((["net.caffemodel"], {"until": "error"}), "is a Caffe weight file, not a network description"),
    ],
)
def test_wrong_calls(call: tuple[list[str], dict[str, Any]], message: str) -> None:
    before = write(layer("TanH", "", "BEFORE", "AFTER"))
    with pytest.raises(UsageError, match=message):
        tc.reduce(*call[0], **group_options(**call[1]))
    assert {each.name: each.read_bytes() for each in Path().iterdir()} == before


@pytest.mark.parametrize("name", ["net.prototxt", "net.caffemodel"])
def test_a_damaged_file_is_one_error(name: str) -> None:
    write(UNKNOWN)
    content = Path(name).read_bytes()
    Path(name).write_bytes(content[: len(content) // 2])
    with pytest.raises(CorruptInputError, match=name):
        tc.reduce("net.prototxt", "net.caffemodel", until="error", output="small.prototxt")
    assert not Path("small.prototxt").exists()


def test_a_failure_that_is_lost_when_the_file_is_written_again_is_reported() -> None:
    write(UNKNOWN)
    with pytest.raises(UsageError, match="lost when it is written again"):
        tc.reduce("net.prototxt", "net.caffemodel", until=lambda path: "layer { name" in Path(path).read_text())
