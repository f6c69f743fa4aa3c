"""Conversion runs of exported models, on models built here; no exporter is needed."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tools.zoo.files import Export, Made, exports, load_samples, save_samples
from tools.zoo.page import is_int8_close, network_table, page, raw_file, raw_rows
from tpuconvert.frontends.registry import registry

pytest.importorskip("onnxruntime.quantization")  # it imports ml_dtypes, which an old onnx does not bring along
from tools.zoo import trial
from tools.zoo.comparison import Comparison
from tools.zoo.detections import Kept
from tools.zoo.outcome import DIFFERENT, EXPORTER, INTERNAL, NUMBER, OK, REFUSED, Outcome, read_log
from tools.zoo.peer import quantize, session
from tools.zoo.running import run, run_export

LIMITS = "INT8 cosine at least 0.99 (detectors: 80 % of the boxes), and 50 % of the multiply-accumulates in integers"


@pytest.fixture(autouse=True)
def converters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unregister the converters of plugins after each test: they replace the kernel of a standard operator."""
    known = registry("onnx")
    known.discover()
    monkeypatch.setattr(known, "_versions", {key: dict(found) for key, found in known._versions.items()})
    monkeypatch.setattr(known, "_selected", {})


def softsign_plugin(folder: Path, since: int, body: str) -> list[Path]:
    """Write a plugin with a converter for Softsign, a standard operator since opset 1."""
    lines = [
        "from tpuconvert import register_converter",
        "from tpuconvert.frontends.functions import softsign as expand",
        "from tpuconvert.schema.ops.copy import Copy",
        "from tpuconvert.schema.ops.arithmetic_with_scalar import Muls",
        "from tpuconvert.schema.types import Scalar",
        f'@register_converter("onnx", "Softsign", since={since})',
        "def softsign(node, g):",
        f"    {body}",
    ]
    path = folder / f"softsign_{since}.py"
    path.write_text("\n".join(lines) + "\n")
    return [path]


def write(folder: Path, batch: str, operator: str) -> Export:
    """Write a model ``x @ w -> operator -> Relu`` and samples for it."""
    weight = numpy_helper.from_array(np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8), "w")
    extent = "batch" if batch == "open" else 1
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node(operator, ["h"], ["k"]),
        helper.make_node("Relu", ["k"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [extent, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)
    export = Export("net", "torchscript", 13, batch)
    onnx.save(model, str(export.path(folder)))
    save_samples(folder, "net", {"x": np.random.default_rng(1).standard_normal((4, 1, 4)).astype(np.float32)})
    return export


@pytest.mark.parametrize("batch", ["fixed", "open"])
def test_a_model_that_converts_has_figures(tmp_path: Path, batch: str) -> None:
    found = run_export(write(tmp_path, batch, "Tanh"), tmp_path, "bm1686", 60.0)
    assert (found.outcome, found.reason) == (OK, "")
    assert found.cosine is not None and 0.99 < found.cosine < 1.0  # INT8 of one matmul: an error below 1 %, not exact
    assert found.share == 1.0
    assert found.peer is not None and 0.99 < found.peer < 1.0  # ONNX Runtime's INT8 model


def test_a_quantized_source_keeps_its_integers(tmp_path: Path) -> None:
    source = write(tmp_path, "fixed", "Tanh")
    export = Export("net", "onnxruntime", 15, "fixed")
    quantize(source.path(tmp_path), export.path(tmp_path), load_samples(tmp_path, "net"))
    found = run_export(export, tmp_path, "bm1686", 60.0)
    assert (found.outcome, found.reason) == (OK, "")
    assert found.share == 1.0
    assert found.cosine is not None and found.cosine > 0.9999  # the same integers but for near ties
    assert (found.difference, found.peer) == (None, None)


def test_an_operator_that_needs_a_number_gets_one(tmp_path: Path) -> None:
    export = write(tmp_path, "open", "Tanh")
    model = onnx.load(str(export.path(tmp_path)))
    model.graph.node[-1].output[0] = "z"
    rank = len(model.graph.input[0].type.tensor_type.shape.dim)
    order = [*range(1, rank), 0]
    model.graph.node.extend(
        [
            helper.make_node("Transpose", ["z"], ["turned"], perm=order),
            helper.make_node("Trilu", ["turned"], ["part"]),
            helper.make_node("Transpose", ["part"], ["y"], perm=list(np.argsort(order))),
        ]
    )
    onnx.save(model, str(export.path(tmp_path)))
    found = run_export(export, tmp_path, "bm1686", 60.0)
    assert (found.outcome, found.reason) == (NUMBER, "Trilu")
    assert found.cosine is not None and found.cosine > 0.99
    assert found.share == 1.0


def test_an_operator_without_a_form_is_a_refusal(tmp_path: Path) -> None:
    found = run_export(write(tmp_path, "fixed", "Bernoulli"), tmp_path, "bm1686", 60.0)
    assert (found.outcome, found.stage) == (REFUSED, "check")
    assert found.reason.startswith("Bernoulli: ")


def test_an_exception_is_an_internal_error(tmp_path: Path) -> None:
    plugins = softsign_plugin(tmp_path, 2, 'raise ZeroDivisionError("a mistake")')
    found = run_export(write(tmp_path, "fixed", "Softsign"), tmp_path, "bm1686", 60.0, plugins)
    assert (found.outcome, found.stage) == (INTERNAL, "check")
    assert "a mistake" in found.reason


def test_other_numbers_are_a_difference(tmp_path: Path) -> None:
    plugins = softsign_plugin(tmp_path, 3, "return g.add(Copy(), node.input(0))")
    found = run_export(write(tmp_path, "fixed", "Softsign"), tmp_path, "bm1686", 60.0, plugins)
    assert (found.outcome, found.stage) == (DIFFERENT, "run float")


@pytest.mark.parametrize(("own_difference", "outcome", "since"), [(4e-4, OK, 5), (1e-4, DIFFERENT, 6)])
def test_differences_may_be_twice_those_of_onnx_runtime_to_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_difference: float, outcome: str, since: int
) -> None:
    """The plugin's result is 2 ** -11 too large; without optimizations ONNX Runtime's differs by ``own_difference``."""

    class Session:
        def __init__(self, path: Path, *, is_optimized: bool = True) -> None:
            self._session = session(path)
            self._factor = 1.0 if is_optimized else 1.0 + own_difference
            self.get_inputs, self.get_outputs = self._session.get_inputs, self._session.get_outputs

        def run(self, names: list[str], feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
            return [array * np.float32(self._factor) for array in self._session.run(names, feeds)]

    monkeypatch.setattr(trial, "session", Session)
    monkeypatch.setattr(trial, "VERIFIED_MACS", 0)
    body = "return g.add(Muls(Scalar(node.input(0).dtype, 1.00048828125)), expand(g, node.input(0)))"
    plugins = softsign_plugin(tmp_path, since, body)
    found = run_export(write(tmp_path, "fixed", "Softsign"), tmp_path, "bm1686", 60.0, plugins)
    assert found.outcome == outcome, found.reason


def test_a_model_that_takes_too_long_is_an_internal_error(tmp_path: Path) -> None:
    plugins = softsign_plugin(tmp_path, 4, "while True: pass")
    found = run_export(write(tmp_path, "fixed", "Softsign"), tmp_path, "bm1686", 2.0, plugins)
    assert (found.outcome, found.stage) == (INTERNAL, "check")
    assert "longer than 2 s" in found.reason


def test_refused_exports_and_finished_ones_are_not_run_again(tmp_path: Path) -> None:
    export = write(tmp_path, "fixed", "Tanh")
    refused = Export("net", "dynamo", 18, "open")
    refused.refusal_path(tmp_path).write_text("NotImplementedError: grid\n")
    assert list(exports(tmp_path)) == [refused, export]
    log = tmp_path / "log.jsonl"
    first = run(tmp_path, log=log)
    assert [found.outcome for found in first] == [EXPORTER, OK]
    assert first[0].reason == "NotImplementedError: grid"
    export.path(tmp_path).write_bytes(b"no model: reading it would fail")
    assert run(tmp_path, log=log) == first


def test_a_model_that_ended_the_process_is_an_internal_error(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text('{"begun": {"network": "net", "exporter": "dynamo", "opset": 18, "batch": "open"}}\n')
    (found,) = read_log(log).values()
    assert (found.outcome, found.reason) == (INTERNAL, "the process ended")


def test_samples_are_read_as_they_were_written(tmp_path: Path) -> None:
    save_samples(tmp_path, "net", {"a": np.arange(6).reshape(3, 1, 2), "b": np.zeros((3, 1), np.float32)})
    samples = load_samples(tmp_path, "net")
    assert [sample["a"].tolist() for sample in samples] == [[[0, 1]], [[2, 3]], [[4, 5]]]


def test_figures_of_a_comparison() -> None:
    found = Comparison()
    found.add(np.array([0.0, 4.0]), np.array([0.0, 4.0]))
    found.add(np.array([0.0, 4.0]), np.array([0.4, 4.0]))
    assert found.relative == pytest.approx(0.1)  # 0.4 of a range of 4
    assert found.cosine == pytest.approx(32 / np.sqrt(32 * 32.16))
    assert found.sqnr == pytest.approx(10 * np.log10(4 / 0.04))  # variance 4, mean squared noise 0.16 / 4
    assert found.centered is None  # the source ignores its input


def test_the_centered_cosine_leaves_out_what_all_samples_share() -> None:
    found = Comparison()
    found.add(np.array([10.0, 0.0]), np.array([10.0, 0.0]))
    found.add(np.array([10.0, 2.0]), np.array([11.0, 2.0]))
    assert found.cosine > 0.998
    assert found.centered == pytest.approx(2 / np.sqrt(2 * 2.5))  # deviations (0, -1, 0, 1) and (-0.5, -1, 0.5, 1)


def test_share_of_boxes_needs_overlap_and_label() -> None:
    wanted = {"boxes": np.array([[0, 0, 2, 2], [0, 0, 2, 2], [4, 4, 6, 6], [8, 8, 9, 9.0]]), "labels": ints(1, 1, 2, 3)}
    given = {"boxes": np.array([[0, 0, 2, 1.5], [4, 4, 6, 6], [8, 8, 8.5, 8.8]]), "labels": ints(1, 1, 3)}
    found = Kept()
    assert found.share is None
    found.add(wanted, given)
    assert found.share == 0.25  # overlaps 0.75, the same box again, another label, 0.4
    found.add(wanted, {"boxes": np.zeros((0, 4)), "labels": ints()})
    assert found.share == 0.125


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def test_an_int8_detector_has_a_share_of_boxes(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Reshape", ["h", "four"], ["all"]),
        helper.make_node("ReduceMax", ["all"], ["score"], axes=[1], keepdims=0),
        helper.make_node("Greater", ["score", "limit"], ["mask"]),
        helper.make_node("Compress", ["all", "mask"], ["boxes"], axis=0),
        helper.make_node("Compress", ["numbers", "mask"], ["labels"], axis=0),
    ]
    corners = np.array([0, 0, 1, 1]) + np.arange(8)[:, None] * np.array([1, 1, 1, 1])
    weight = np.stack([np.full(32, 0.01), corners.reshape(-1)]).astype(np.float32)
    constants = {"w": weight, "four": ints(-1, 4), "limit": np.array(2.5, np.float32), "numbers": np.arange(8)}
    shapes = {"x": (TensorProto.FLOAT, [1, 2])}
    results = {"boxes": (TensorProto.FLOAT, ["n", 4]), "labels": (TensorProto.INT64, ["n"])}
    inputs, outputs = (
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in declared.items()]
        for declared in (shapes, results)
    )
    stored = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, stored)
    export = Export("net", "torchscript", 13, "fixed")
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, str(export.path(tmp_path)))
    x = np.stack([np.linspace(-1, 1, 12), np.linspace(0.5, 1.5, 12)], 1).astype(np.float32)
    save_samples(tmp_path, "net", {"x": x[:, None]})
    found = run_export(export, tmp_path, "bm1686", 60.0)
    assert (found.outcome, found.reason) == (OK, "")
    assert found.difference is not None and found.difference < 1e-6
    assert found.kept is not None and found.kept >= 0.9  # a score near the limit may be lost
    assert found.cosine is None


def test_an_int8_model_is_compared_on_samples_that_did_not_calibrate(tmp_path: Path) -> None:
    export = write(tmp_path, "fixed", "Tanh")
    x = np.random.default_rng(1).standard_normal((12, 1, 4)).astype(np.float32)
    save_samples(tmp_path, "net", {"x": x})
    before = run_export(export, tmp_path, "bm1686", 60.0)
    x[8:] *= 100.0  # far outside of the calibrated range
    save_samples(tmp_path, "net", {"x": x})
    after = run_export(export, tmp_path, "bm1686", 60.0)
    assert before.sqnr is not None and after.sqnr is not None
    assert before.sqnr > 30.0  # one matmul in 8 bits
    assert after.sqnr != before.sqnr


def test_a_model_without_int8_form_keeps_its_float_measurements(tmp_path: Path) -> None:
    export = write(tmp_path, "fixed", "Tanh")
    save_samples(tmp_path, "net", {"x": np.full((4, 1, 4), np.inf, np.float32)})
    found = run_export(export, tmp_path, "bm1686", 60.0)
    assert found.outcome != OK
    assert found.float_nodes is not None


def test_the_page_joins_opsets_that_ended_alike(tmp_path: Path) -> None:
    Made({"torch": "2.13.0+cpu", "onnx": "1.23", "timm": "1.0"}, {"net": "net"}, {"net": "timm"}).save(tmp_path)
    sizes = {"source_nodes": 9, "float_nodes": 3, "int8_nodes": 5, "float_seconds": 0.1, "int8_seconds": 0.5}
    found = [
        Outcome(Export("net", "dynamo", 18, "fixed"), OK, "", "", 1e-7, 0.99, 0.98, 20.0, 0.96, 1.0, **sizes),
        Outcome(Export("net", "dynamo", 19, "fixed"), OK, "", "", 2e-6, 0.98, 0.97, 20.0, 0.95, 1.0, **sizes),
        Outcome(Export("net", "dynamo", 20, "fixed"), INTERNAL, "int8", "KeyError: 'a|b'"),
        Outcome(Export("net", "dynamo", 18, "open"), NUMBER, reason="Range", difference=0.0, cosine=0.99, sqnr=20.0),
        Outcome(Export("other", "dynamo", 18, "fixed"), OK, difference=0.0, cosine=1.0),
    ]
    text = page(found, tmp_path, {"net": "one layer dominates"})
    first, second, *_ = raw_rows(found, Made.load(tmp_path))
    assert list(first.values()) == [
        *("net", "timm", "dynamo", "fixed", "18, 19", "ok", "2e-06", "0.9800 to 0.9900", "0.9500 to 0.9600"),
        *("0.9700 to 0.9800", "20.0", "", "100 %", "9, 3, 5", "0.1, 0.5"),
    ]
    assert list(second.values()) == ["net", "timm", "dynamo", "fixed", "20", "internal error", *[""] * 9]
    assert json.loads(raw_file([first, second])) == [first, second]
    row = "| net | timm | dynamo 18, 19; dynamo 20; dynamo 18 | ok, internal error, ok with a number | 2e-06 "
    assert row + "| 0.9800 to 0.9900 | 0.9500 to 0.9600 |  | 100 % |" in text
    assert "| 1 | internal error | int8: KeyError: 'a/b' | net |" in text
    assert "| 1 | ok with a number | Range | net |" in text
    assert "PyTorch 2.13.0 (networks of timm 1.0 and hand-written ones)" in text
    assert "| exported | 2 | |" in text
    assert "| float error at most 0.0001 for every export | 1 | 50.0 % |" in text  # one export has no result
    assert f"| {LIMITS}, for every export | 1 | 50.0 % |" in text
    assert "| net | 2 | cosine 0.9800 | 0.9500 | one layer dominates |" in text


def test_the_table_of_the_page_has_the_raw_rows(repository: Path) -> None:
    folder = repository / "docs" / "inside"
    rows = json.loads((folder / "exporters.json").read_text(encoding="utf-8"))
    assert len(rows) >= 300
    assert "\n".join(network_table(rows)) in (folder / "exporters.md").read_text(encoding="utf-8")


def test_a_model_mostly_in_float_does_not_count_as_int8() -> None:
    export = Export("net", "dynamo", 18, "fixed")
    shares = {0.0: False, 0.49: False, 0.5: True, None: True}  # None: no multiply-accumulates
    for share, is_close in shares.items():
        assert is_int8_close(Outcome(export, OK, cosine=1.0, share=share)) is is_close
    assert not is_int8_close(Outcome(export, OK, kept=1.0, share=0.0))


def test_the_page_lists_networks_without_a_run(tmp_path: Path) -> None:
    Made({"torch": "2.13.0"}).save(tmp_path)
    export = write(tmp_path, "fixed", "Tanh")
    Export("refused", "dynamo", 20, "fixed").refusal_path(tmp_path).write_text("no\n")
    assert "which no share counts: net." in page([], tmp_path, {})
    assert "which no share counts" not in page([Outcome(export, OK, difference=0.0, cosine=1.0)], tmp_path, {})


def test_the_page_has_the_boxes_of_a_detector(tmp_path: Path) -> None:
    Made({"torch": "2.13.0"}).save(tmp_path)
    found = [
        Outcome(Export("first", "dynamo", 18, "fixed"), OK, difference=0.0, kept=0.9),
        Outcome(Export("second", "dynamo", 18, "fixed"), OK, difference=0.0, kept=0.5),
    ]
    text = page(found, tmp_path, {"first": "its boxes are far apart", "second": "its scores are equal"})
    assert f"| {LIMITS}, for every export | 1 | 50.0 % |" in text
    assert "| first |  | dynamo 18 | ok | 0e+00 |  |  | 90 % |  |" in text
    assert "| first | 1 | boxes 90 % |  | its boxes are far apart |" in text
    assert "| second | 1 | boxes 50 % |  | its scores are equal |" in text


def test_the_page_lists_networks_with_rows_of_an_earlier_run(tmp_path: Path) -> None:
    Made({"torch": "2.13.0"}).save(tmp_path)
    found = [
        Outcome(Export("old", "dynamo", 18, "fixed"), OK, difference=0.0, cosine=1.0),
        Outcome(Export("new", "dynamo", 18, "fixed"), OK, difference=0.0, cosine=1.0, seconds=2.0),
        Outcome(Export("refused", "dynamo", 18, "fixed"), EXPORTER, reason="no"),
    ]
    assert "Networks with rows of an earlier run: old." in page(found, tmp_path, {})
    assert "earlier run" not in page(found[1:], tmp_path, {})


def test_a_missed_limit_without_an_explanation_is_not_examined(tmp_path: Path) -> None:
    Made({"torch": "2.13.0"}).save(tmp_path)
    found = [Outcome(Export("net", "dynamo", 18, "fixed"), OK, difference=0.0, cosine=0.5)]
    assert "| net | 1 | cosine 0.5000 |  | not examined |" in page(found, tmp_path, {})
