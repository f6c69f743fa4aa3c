"""Files that would take too much time or memory, and paths that are not regular files."""

import importlib
import io
import itertools
import os
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tpuconvert as tc
from tpuconvert.cli.entry import run
from tpuconvert.conversion.quantization.ranges_file import read_ranges
from tpuconvert.evaluation.classes import read_labels as read_classes
from tpuconvert.evaluation.objects import load_objects
from tpuconvert.samples.array_files import load_arrays
from tpuconvert.samples.image_files import open_image
from tpuconvert.schema.graph.control_flow import Subgraph, run_reference
from tpuconvert.schema.ops.host.control import HostLoop
from tpuconvert.schema.system.limits import (
    DEFAULT_LIMITS,
    NAMES,
    check_time,
    current_limits,
    limited,
    parse_limits,
    reading_time,
)
from tpuconvert.schema.types import Array, Chip
from tpuconvert.yaml_files import parse_yaml, read_yaml

MERGE_BOMB = "\n".join(
    ["a0: &a0 {k: 1}"] + [f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}, *a{i - 1}], k{i}: 1}}" for i in range(1, 30)]
)
ALIAS_BOMB = "\n".join(["a0: &a0 [1, 1]"] + [f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 40)])


@pytest.mark.parametrize("text", [MERGE_BOMB, ALIAS_BOMB])
def test_aliases_that_expand(text: str) -> None:
    with pytest.raises(
        tc.ResourceLimitError, match=r"(?s)rules.yaml: aliases and merge keys that expand to .* --limit"
    ):
        parse_yaml(text, "rules.yaml")


def test_aliases_and_merge_keys_are_allowed() -> None:
    text = "base: &base {a: 1, b: [1, 2]}\nother: {<<: *base, c: 3}\nlist: [*base, *base]\n"
    found = parse_yaml(text, "rules.yaml")
    assert found["other"] == {"a": 1, "b": [1, 2], "c": 3}
    assert found["list"] == [{"a": 1, "b": [1, 2]}] * 2
    assert parse_yaml("", "rules.yaml") is None


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [*a]",
        "a: 2001-99-99",
        "a: !!int x",
        "a: !!int ''",
        "a: !!float _",
        "a: !!bool x",
        "a: !!timestamp x",
        "a: !!null [1]",
        "? [1]\n: 2",
        "a: !!python/object:os.system x",
        "a: [" + "[" * 3000,
    ],
)
def test_values_that_cannot_be_constructed(text: str) -> None:
    with pytest.raises(tc.UsageError, match=r"rules.yaml: is not YAML: "):
        parse_yaml(text, "rules.yaml")


def test_no_function_is_called(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    with pytest.raises(tc.UsageError, match=r"rules.yaml: is not YAML: "):
        parse_yaml(f"a: !!python/object/apply:os.mkdir ['{folder}']", "rules.yaml")
    assert not folder.exists()


def test_long_yaml() -> None:
    with pytest.raises(tc.ResourceLimitError, match="characters of YAML, more than 2097152"):
        parse_yaml("#" * (3 << 20), "rules.yaml")


PIPE_READERS = {
    "yaml": read_yaml,
    "ranges": read_ranges,
    "classes": read_classes,
    "arrays": load_arrays,
    "model": tc.load,
    "source": tc.convert,
}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
@pytest.mark.parametrize("reader", sorted(PIPE_READERS))
def test_pipes_do_not_block(reader: str, tmp_path: Path) -> None:
    pipe = tmp_path / "given"
    os.mkfifo(pipe)
    with pytest.raises(tc.UsageError, match="device"):
        PIPE_READERS[reader](pipe)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="the system has no /dev/zero")
@pytest.mark.parametrize("reader", sorted(PIPE_READERS))
def test_devices_are_not_read(reader: str) -> None:
    with pytest.raises(tc.UsageError, match="device"):
        PIPE_READERS[reader](Path("/dev/zero"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_image_that_is_a_pipe(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    os.mkfifo(tmp_path / "a.png")
    with pytest.raises(tc.UsageError, match="is a pipe or a device"), open_image(tmp_path / "a.png"):
        pass


def test_images_with_too_many_pixels(tmp_path: Path) -> None:
    Image = pytest.importorskip("PIL.Image")
    Image.new("1", (9000, 9000)).save(tmp_path / "large.png")
    with pytest.raises(tc.ResourceLimitError, match="9000 x 9000 pixels, more than 67108864"):
        _size(tmp_path / "large.png")
    with tc.limited(image_pixels=100_000_000):
        assert _size(tmp_path / "large.png") == (9000, 9000)


def _size(path: Path) -> tuple[int, int]:
    with open_image(path) as image:
        return image.size


def _npz_of_zeros(path: Path, elements: int) -> None:
    """Write a compressed array of zeros, part by part."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (elements,)})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("x.npy", "w") as member:
        member.write(header.getvalue())
        for _ in range(4 * elements >> 20):
            member.write(bytes(1 << 20))


def test_arrays_that_expand(tmp_path: Path) -> None:
    path = tmp_path / "zeros.npz"
    _npz_of_zeros(path, 80 << 20)
    with pytest.raises(tc.ResourceLimitError, match=r"bytes that expand to .* bytes, more than 268435456"):
        load_arrays(path)
    with tc.limited(expanded_bytes=1 << 30):
        assert load_arrays(path)["x"].shape == (80 << 20,)


def test_large_arrays_that_are_hardly_compressed(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 256, 1 << 16, np.uint8)
    np.savez_compressed(tmp_path / "x.npz", x=x)
    with tc.limited(expanded_bytes=1 << 10):
        np.testing.assert_array_equal(load_arrays(tmp_path / "x.npz")["x"], x)


def _damaged_arrays() -> dict[str, bytes]:
    content = io.BytesIO()
    np.savez_compressed(content, x=np.arange(1000.0))
    deflated = bytearray(content.getvalue())
    deflated[60:70] = b"\xff" * 10
    encrypted = bytearray(content.getvalue())
    for start in (encrypted.index(b"PK\x03\x04") + 6, encrypted.index(b"PK\x01\x02") + 8):
        encrypted[start] |= 1
    method = bytearray(content.getvalue())
    for start in (method.index(b"PK\x03\x04") + 8, method.index(b"PK\x01\x02") + 10):
        method[start] = 99

    def member(header: bytes) -> bytes:
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as written:
            text = header.ljust(118) + b"\n"
            written.writestr("x.npy", b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text)
        return archive.getvalue()

    huge = b"{'descr': '<f8', 'fortran_order': False, 'shape': (9999999999999, 9999), }"
    return {
        "deflated": bytes(deflated),
        "encrypted": bytes(encrypted),
        "method": bytes(method),
        "header": member(b"{'descr': '<f8', ((("),
        "type": member(b"{'descr': 7, 'fortran_order': False, 'shape': (3,), }"),
        "shape": member(b"{'descr': '<f8', 'fortran_order': False, 'shape': (-3, 1 << 80), }"),
        "huge": member(huge),
        "objects": member(b"{'descr': '|O', 'fortran_order': False, 'shape': (3,), }"),
    }


@pytest.mark.parametrize("kind", sorted(_damaged_arrays()))
def test_damaged_arrays(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    path.write_bytes(_damaged_arrays()[kind])
    with pytest.raises(tc.CorruptInputError, match="not a NumPy file, or a damaged one"):
        load_arrays(path)


@pytest.mark.parametrize(
    "content", ["[" * 100_000, '{"images": 3}', "[]", '{"images": [{"id": 1e400, "file_name": 1}]}']
)
def test_damaged_annotations(content: str, tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    (tmp_path / "labels.json").write_text(content)
    with pytest.raises(tc.CorruptInputError, match="no COCO annotations"):
        load_objects(tmp_path, tmp_path / "labels.json")


def test_limits_of_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.delenv("TPUCONVERT_LIMITS", raising=False)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Sqrt", ["a"], ["y"])]
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", [x], [y])), path)
    assert run(["--limit", "nodes=1", "check", str(path)]) == 6
    assert "2 nodes, more than 1\n    if you trust the file: tpuconvert --limit nodes=NUMBER" in capsys.readouterr().err
    monkeypatch.setenv("TPUCONVERT_LIMITS", "nodes=5")
    assert run(["check", str(path)]) == 0
    assert run(["--limit", "node=1", "check", str(path)]) == 2
    assert "there is no limit 'node'" in capsys.readouterr().err
    monkeypatch.setenv("TPUCONVERT_LIMITS", "nodes=many")
    assert run(["check", str(path)]) == 2
    assert (
        "environment variable TPUCONVERT_LIMITS: limit 'nodes=many': not a positive number" in capsys.readouterr().err
    )


def test_names_and_values_of_limits() -> None:
    assert parse_limits(["image-pixels=2e8", " nodes = 7 "]) == parse_limits(["nodes=7", "image-pixels=200000000"])
    for text in ("nodes", "nodes=", "nodes=-1", "nodes=0", "nodes=1e999", "nodes=nan", "nodes=1_0x"):
        with pytest.raises(tc.UsageError, match="not a positive number"):
            parse_limits([text])
    with tc.limited(nodes=3), tc.limited(image_pixels=5):
        assert (current_limits().max_nodes, current_limits().max_image_pixels) == (3, 5)
    assert current_limits() == DEFAULT_LIMITS


def test_time_of_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("tpuconvert.schema.system.limits.time.thread_time", lambda: now[0])
    check_time()  # no limit outside of a block
    with reading_time("net.onnx"):
        check_time()

    def read() -> None:
        with reading_time("net.onnx"), reading_time("inner"):
            now[0] = 1e9
            check_time()

    with pytest.raises(tc.ResourceLimitError, match=r"(?s)net.onnx: .* read-seconds"):
        read()


def test_a_pause_is_no_time_of_reading() -> None:
    with tc.limited(read_seconds=1), reading_time("net.onnx"):
        time.sleep(1.1)
        check_time()


def test_a_loop_has_a_limit_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes of constants are evaluated and do not count as nodes of the graph."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["c1"]), helper.make_node("Add", ["s", "s"], ["s1"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("s", TensorProto.FLOAT, [2]),
        ],
        [
            helper.make_tensor_value_info("c1", TensorProto.BOOL, []),
            helper.make_tensor_value_info("s1", TensorProto.FLOAT, [2]),
        ],
    )
    nodes = [helper.make_node("Loop", ["n", "", "zero"], ["l"], body=body), helper.make_node("Add", ["x", "l"], ["y"])]
    constants = [
        helper.make_tensor("n", TensorProto.INT64, [], [40_000]),
        helper.make_tensor("zero", TensorProto.FLOAT, [2], [0, 0]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    path = tmp_path / "loop.onnx"
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", [x], [y], constants)), path)
    calls = [0.0]

    def clock() -> float:
        calls[0] += 1
        return calls[0]

    monkeypatch.setattr("tpuconvert.schema.system.limits.time.thread_time", clock)
    with pytest.raises(tc.ResourceLimitError, match=r"(?s)loop.onnx: .* read-seconds"):
        tc.convert(path)


def test_the_page_has_all_limits() -> None:
    page = (Path(tc.__file__).parents[1] / "docs" / "reference" / "security.md").read_text(encoding="utf-8")
    rows = dict(line.strip("| ").split(" | ")[:2] for line in page.splitlines() if line.startswith("| `"))
    limits = {f"`{name}`": f"{getattr(DEFAULT_LIMITS, field):,}" for name, field in NAMES.items()}
    assert {name: rows.get(name) for name in limits} == limits


def save_graph(path: Path, nodes: list[onnx.NodeProto], shape: list[int], **constants: np.ndarray) -> Path:
    graph = helper.make_graph(
        nodes,
        "m",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


DOUBLING = {
    "Concat": lambda a, b: helper.make_node("Concat", [a, a], [b], axis=0),
    "Tile": lambda a, b: helper.make_node("Tile", [a, "twice"], [b]),
}


@pytest.mark.parametrize("operator", DOUBLING)
def test_constants_are_limited_together(operator: str, tmp_path: Path) -> None:
    """No result is above the limit for one: the sum is."""
    constants = {"k": np.ones(1, np.float32), "twice": np.array([2])}
    nodes = [DOUBLING[operator](f"t{i}" if i else "k", f"t{i + 1}") for i in range(50)]
    nodes.append(helper.make_node("Add", ["x", "t50"], ["y"]))
    path = save_graph(tmp_path / "m.onnx", nodes, [1], **constants)
    with pytest.raises(tc.ResourceLimitError, match=r"(?s)its computed constants take .* --limit computed-bytes"):
        tc.convert(path)


def test_constants_of_many_nodes_are_limited_together(tmp_path: Path) -> None:
    nodes, count = [], 20
    for i in range(count):
        nodes.append(helper.make_node("ConstantOfShape", ["extents"], [f"k{i}"]))
        nodes.append(helper.make_node("Add", [f"t{i}" if i else "x", f"k{i}"], [f"t{i + 1}"]))
        nodes.append(helper.make_node("Exp", [f"t{i + 1}"], [f"e{i + 1}"]))
    nodes.append(helper.make_node("Sum", [f"e{i + 1}" for i in range(count)], ["y"]))
    path = save_graph(tmp_path / "m.onnx", nodes, [1], extents=np.array([4 << 20]))
    with pytest.raises(tc.ResourceLimitError, match=r"(?s)its computed constants take .* --limit computed-bytes"):
        tc.convert(path)


def test_constants_may_grow_with_the_file(tmp_path: Path) -> None:
    node = helper.make_node("Concat", ["k"] * 12, ["c"], axis=0)
    nodes = [node, helper.make_node("Add", ["x", "c"], ["y"])]
    path = save_graph(tmp_path / "m.onnx", nodes, [1], k=np.ones(1 << 16, np.float32))
    with tc.limited(computed_bytes=1 << 20):
        assert tc.convert(path).graph.constant_bytes == 12 << 18


def test_calls_of_functions_are_counted_before_they_are_inlined(tmp_path: Path) -> None:
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    functions = []
    for i in range(41):
        inner = [helper.make_node(f"F{i + 1}", [a], [b], domain="local") for a, b in (("a", "c"), ("c", "b"))]
        body = inner if i < 40 else [helper.make_node("Relu", ["a"], ["b"])]
        functions.append(helper.make_function("local", f"F{i}", ["a"], ["b"], body, imports))
    proto = onnx.load(save_graph(tmp_path / "m.onnx", [helper.make_node("F0", ["x"], ["y"], domain="local")], [1]))
    proto.functions.extend(functions)
    proto.opset_import.append(helper.make_opsetid("local", 1))
    with pytest.raises(tc.ResourceLimitError, match=r"more than 1,000,000,000 nodes after its function calls"):
        tc.convert(proto)
    proto.functions[40].node[0].op_type, proto.functions[40].node[0].domain = "F0", "local"
    with pytest.raises(tc.CorruptInputError, match="function 'F0' calls itself"):
        tc.convert(proto)


@pytest.mark.parametrize("backend", ["native", "reference"])
def test_runs_are_refused_before_they_allocate(backend: str, tmp_path: Path) -> None:
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"])
    path = save_graph(tmp_path / "m.onnx", [node], [1, 1, 8, 8], sizes=np.array([1, 1, 30000, 30000]))
    model = tc.convert(path)
    with pytest.raises(tc.ResourceLimitError, match=r"(?s)a run takes 3,600,000,000 bytes.*run-bytes"):
        tc.Session(model, backend=backend).run({"x": np.ones((1, 1, 8, 8), np.float32)})


def test_sources_that_take_too_much_are_not_given_to_another_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"])
    path = save_graph(tmp_path / "m.onnx", [node], [1, 1, 8, 8], sizes=np.array([1, 1, 30000, 30000]))
    oracle = importlib.import_module("tpuconvert.verify.oracle")  # tc.verify is the function
    monkeypatch.setattr(oracle, "run_module", lambda *_, **__: pytest.fail("the engine was started"))
    with pytest.raises(tc.ResourceLimitError, match=r"(?s)a run takes 3,600,000,000 bytes.*run-bytes"):
        tc.verify(tc.convert(path), path)


def test_formulas_of_extents_are_limited(tmp_path: Path) -> None:
    """The extents of the outer products become one."""
    nodes = []
    for i in range(40):
        a, b = f"t{i}" if i else "x", f"t{i + 1}" if i < 39 else "y"
        nodes += [
            helper.make_node("Unsqueeze", [a, "one"], [f"c{i}"]),
            helper.make_node("Mul", [f"c{i}", a], [f"m{i}"]),
            helper.make_node("Reshape", [f"m{i}", "flat"], [b]),
        ]
    path = save_graph(tmp_path / "m.onnx", nodes, ["n"], one=np.array([1]), flat=np.array([-1]))
    with pytest.raises(tc.ResourceLimitError, match=r"(?s)an extent whose formula has .* --limit extent-characters"):
        tc.convert(path)


def test_sums_of_one_extent_are_a_multiple(tmp_path: Path) -> None:
    names = ["x", *(f"t{i}" for i in range(39)), "y"]
    nodes = [helper.make_node("Concat", [a, a], [b], axis=0) for a, b in itertools.pairwise(names)]
    model = tc.convert(save_graph(tmp_path / "m.onnx", nodes, ["n"]))
    assert model.graph.outputs[0].shape == (f"{2**40}*n",)


def test_a_sum_of_many_extents_can_be_written(tmp_path: Path) -> None:
    path = save_graph(tmp_path / "m.onnx", [helper.make_node("Concat", ["x"] * 900, ["y"], axis=0)], ["n"])
    tc.convert(path).save(tmp_path / "m.tpum")
    assert tc.load(tmp_path / "m.tpum").graph.outputs[0].shape == ("900*n",)


def doubling_loop(copies: int, path: Path) -> tc.Model:
    """A loop that concatenates copies of its state and keeps two of them."""
    info = helper.make_tensor_value_info
    ports = [info("i", TensorProto.INT64, []), info("c", TensorProto.BOOL, []), info("v", TensorProto.FLOAT, None)]
    nodes = [
        helper.make_node("Concat", ["v"] * copies, ["t"], axis=0),
        helper.make_node("Slice", ["t", "start", "end", "start", "step"], ["w"]),
        helper.make_node("Identity", ["c"], ["d"]),
    ]
    results = [info("d", TensorProto.BOOL, []), info("w", TensorProto.FLOAT, None)]
    body = helper.make_graph(nodes, "body", ports, results)
    loop = helper.make_node("Loop", ["n", "go", "x"], ["y"], body=body)
    constants = {"start": [0], "end": [2**31 - 1], "step": [copies // 2]}
    arrays = {name: np.array(value) for name, value in constants.items()}
    proto = onnx.load(save_graph(path, [loop], [1], go=np.array(True), **arrays))
    proto.graph.input.append(info("n", TensorProto.INT64, []))
    return tc.convert(proto)


@pytest.mark.parametrize("backend", ["native", "reference"])
def test_states_of_loops_are_limited(backend: str, tmp_path: Path) -> None:
    model = doubling_loop(2, tmp_path / "m.onnx")
    with limited(run_bytes=1_000_000), pytest.raises(tc.ResourceLimitError, match=r"a loop takes .* bytes"):
        tc.Session(model, backend=backend).run({"x": np.ones(1, np.float32), "n": np.array(40)})


@pytest.mark.parametrize("copies", [2, 20])
def test_iterations_of_loops_are_refused_before_they_allocate(copies: int, tmp_path: Path) -> None:
    """Otherwise the last iteration exceeds the limit by a factor, with its results or with a tensor inside."""
    model = doubling_loop(copies, tmp_path / "m.onnx")
    (loop,) = [node for node in model.graph.nodes if isinstance(node.op, HostLoop)]
    assert isinstance(loop.op, HostLoop)
    sizes = []

    def run(subgraph: Subgraph, arrays: Sequence[Array]) -> Sequence[Array]:
        sizes.append(copies * arrays[2].nbytes)
        return run_reference(subgraph.graph, arrays, Chip.BM1686)

    with limited(run_bytes=1_000_000), pytest.raises(tc.ResourceLimitError, match=r"a loop takes .* bytes"):
        loop.op.execute(run, np.array([40]), np.ones(1), np.ones(1, np.float32))
    assert 100_000 < max(sizes) <= 1_000_000 / (2 if copies == 2 else 1)


def test_many_problems_of_a_node_are_collected_once(tmp_path: Path) -> None:
    node = helper.make_node("Relu", ["x"], ["y"], **{f"a{i}": i for i in range(20_000)})
    path = save_graph(tmp_path / "m.onnx", [node], [1])
    with pytest.raises(tc.UnsupportedError) as caught:
        tc.convert(path)
    assert len(caught.value.problems) == 20_000
