"""Rows, comparison and page of the trained models, and the vendor's programs, without models."""

import dataclasses
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from tools.accuracy.trained import command, measuring, tpu_mlir
from tools.accuracy.trained.catalog import measured_names
from tools.accuracy.trained.command import losses
from tools.accuracy.trained.networks import Network, write_fixed
from tools.accuracy.trained.page import best_rows, page
from tools.accuracy.trained.quantizers import QUANTIZERS
from tools.accuracy.trained.results import Record, Row, append_row, read_rows
from tools.accuracy.trained.tpu_mlir import VendorError, named_outputs, quantize_tpu_mlir
from tools.bench.machine import ABSENT

DETECTOR, LANDMARKS = "nudenet_320n", "mediapipe_face_landmark"
COUNTS = {"kept": 90.0, "extra": 5.0, "detections": 100.0}


def row(quantizer: str, score: float | None, setting: str = "", draw: int = 0, network: str = DETECTOR) -> Row:
    counts = COUNTS if network == DETECTOR else {"distance": 0.1, "samples": 30.0}
    if score is None:
        return Row(network, quantizer, setting, draw, failure="not installed", measured="2026-01-02")
    return Row(network, quantizer, setting, draw, score, 2.0, counts, 10.0, 1.25, measured="2026-01-02")


ROWS = [
    row("float", 100.0),
    row("default", 90.0),
    row("default", 80.0, draw=1),
    row("onnxruntime", 70.0, "U8S8"),
    row("onnxruntime", 60.0, "U8S8", 1),
    row("onnxruntime", 68.0, "S8S8"),
    row("onnxruntime", 66.0, "S8S8", 1),
    row("nncf", 85.0),
    row("nncf", 85.0, draw=1),
    row("tpu-mlir", None),
    row("default", 2.5, network=LANDMARKS),
    row("nncf", 1.5, network=LANDMARKS),
]


def record(rows: list[Row]) -> Record:
    return Record({"processor": "a"}, {each.key: each for each in rows})


def cells(network: str, rows: list[Row]) -> list[str]:
    (line,) = (
        line for line in page(record(rows)).split("## Models")[0].splitlines() if line.startswith(f"| `{network}`")
    )
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_scores_have_their_error_and_the_range_of_the_draws() -> None:
    found = cells(DETECTOR, ROWS)
    assert found[1:4] == ["F1 of detections", "100", "**85.0** ± 2.0 (80.0 to 90.0)"]
    assert found[4:10] == ["-", "-", "67.0 ± 2.0 (66.0 to 68.0)", "**85.0** ± 2.0 (85.0 to 85.0)", "-", "-"]
    assert found[10:] == ["10 / 10 / 10", "1.2 / 1.2"]


def test_smaller_errors_of_points_are_better() -> None:
    assert cells(LANDMARKS, ROWS)[3:8] == ["2.50 ± 2.00", "-", "-", "-", "**1.50** ± 2.00"]


def test_times_that_were_not_measured_are_left_out() -> None:
    rows = [
        dataclasses.replace(row("default", 90.0), milliseconds=ms, draw=draw) for draw, ms in enumerate((0.0, 0.016))
    ]
    assert cells(DETECTOR, rows)[-1] == "0.016 / -"


def test_a_setting_without_all_draws_is_not_the_best() -> None:
    rows = [row("onnxruntime", 99.0, "U8S8"), row("onnxruntime", 60.0, "S8S8"), row("onnxruntime", 60.0, "S8S8", 1)]
    assert {each.setting for each in best_rows(rows, DETECTOR, "onnxruntime")} == {"S8S8"}


def test_differences_of_the_float_model_are_named() -> None:
    assert cells(DETECTOR, [row("float", 97.25), row("default", 90.0)])[2:4] == ["100 (tpuconvert 97.2)", "90.0 ± 2.0"]


def test_what_was_not_measured_has_its_reason() -> None:
    text = page(record([*ROWS, row("nncf", None, network="magika")]))
    assert f"- TPU-MLIR: not installed: `{DETECTOR}`." in text
    assert "- NNCF: not installed: `magika`." in text
    assert "- LiteRT: not run: all models." in text and f"- tpuconvert: not run: `{measured_names()[1]}`, " in text
    every = [dataclasses.replace(row("nncf", None), network=name) for name in measured_names()]
    assert "- NNCF: not installed: all models." in page(record(every))


def test_page_lists_every_model() -> None:
    text = page(record(ROWS))
    assert all(text.count(f"| `{name}` |") == 2 for name in measured_names())
    assert "- measured: 2026-01-02\n- processor: a\n" in text


def test_page_does_not_depend_on_the_order_of_the_rows() -> None:
    rows = [*ROWS, row("nncf", None, network="magika"), row("low", None, network="magika")]
    assert page(record(rows)) == page(record(rows[::-1]))


def test_losses_beyond_the_noise_are_reported() -> None:
    old, rows = record(ROWS).rows, [row("default", 85.0), row("default", 73.0, draw=1), row("nncf", None)]
    rows += [row("default", 12.0, network=LANDMARKS), row("nncf", 1.0, network=LANDMARKS), row("low", 1.0)]
    lines = losses(old, {each.key: each for each in rows})
    # 2 * sqrt(2 ** 2 + 2 ** 2) + 1 = 6.7 points; a score that the record does not have is not a loss
    assert lines == [
        "nudenet_320n, default, 1: 73.0 ± 2.0, recorded is 80.0 ± 2.0",
        "nudenet_320n, nncf, 0: not installed",
        "mediapipe_face_landmark, default, 0: 12.0 ± 2.0, recorded is 2.5 ± 2.0",
    ]


def test_record_and_results_keep_the_rows(tmp_path: Path) -> None:
    record(ROWS).write(tmp_path / "record.json", measured_names())
    assert Record.read(tmp_path / "record.json") == record(ROWS)
    assert Record.read(tmp_path / "absent.json").rows == {}
    for each in ROWS:
        append_row(tmp_path / "rows.jsonl", each)
    assert read_rows(tmp_path / "rows.jsonl") == record(ROWS).rows


def test_settings_and_draws_have_keys() -> None:
    found = measuring.keys([DETECTOR], ["float", "default", "onnxruntime"], [0, 1])
    assert [key[1:] for key in found[:3]] == [("float", "", 0), ("default", "", 0), ("default", "", 1)]
    assert len(found) == 3 + 2 * len(QUANTIZERS["onnxruntime"].settings)


def test_a_quantizer_that_is_not_installed_leaves_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network("mediapipe_selfie", tmp_path, tmp_path)
    monkeypatch.setattr(Network, "calibration", lambda self, draw: [])
    monkeypatch.setitem(sys.modules, "nncf", None)
    assert measuring.measure_row(network, ("mediapipe_selfie", "nncf", "", 0)).failure.startswith("not installed (")
    other = Network(DETECTOR, tmp_path, tmp_path)
    failure = measuring.measure_row(other, (DETECTOR, "litert", "", 0)).failure
    assert failure == "reads tflite files, this model is onnx"


def test_only_engines_of_this_process_have_a_processor_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network("rapidocr_cls", tmp_path, tmp_path)
    samples = [{network.metric.output: np.array([[0.0, 1.0]])}] * 2
    for name in ("evaluation", "float_outputs"):
        monkeypatch.setattr(Network, name, samples)
    times = iter(range(100))
    monkeypatch.setattr(measuring.time, "process_time", lambda: next(times))
    for quantizer, milliseconds in (("default", 1000), ("tpu-mlir", 0)):
        opened = dataclasses.replace(QUANTIZERS[quantizer], open=lambda *_: (lambda feed: feed, 2.0))
        monkeypatch.setitem(QUANTIZERS, quantizer, opened)
        measured = measuring.measure_row(network, ("rapidocr_cls", quantizer, "", 0))
        assert (measured.score, measured.milliseconds, measured.seconds) == (100, milliseconds, 2)


def test_failures_do_not_name_the_folders_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network("mediapipe_selfie", tmp_path / "work", tmp_path / "cache")

    def fail(*_: object, **__: object) -> None:
        raise OSError(f"{network.folder}/a.onnx is absent")

    monkeypatch.setitem(QUANTIZERS, "low", dataclasses.replace(QUANTIZERS["low"], open=fail))
    failure = measuring.measure_row(network, ("mediapipe_selfie", "low", "", 0)).failure
    assert failure == f"OSError: work/{network.folder.name}/a.onnx is absent"


def test_extents_are_fixed_and_nodes_have_names(tmp_path: Path) -> None:
    ports = [onnx.helper.make_tensor_value_info(name, 1, ["n", 3]) for name in ("x", "y")]
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph([node], "g", ports[:1], ports[1:])), tmp_path / "a.onnx")
    write_fixed(tmp_path / "a.onnx", tmp_path / "b.onnx", {"x": (2, 3)})
    graph = onnx.load(tmp_path / "b.onnx").graph
    extents = [[d.dim_value for d in port.type.tensor_type.shape.dim] for port in (*graph.input, *graph.output)]
    assert extents == [[2, 3], [2, 3]] and graph.node[0].name == "Relu_0"


PROGRAM = """import sys
import onnx
from pathlib import Path
options = dict(zip(sys.argv[-1:0:-1][1::2], sys.argv[-1:0:-1][::2]))
name = Path(__file__).stem
print("much")
if name == "model_transform":
    model = onnx.load(options["--model_def"])
    assert (model.opset_import[0].version, model.ir_version) == (19, 9)
    Path(options["--mlir"]).write_text("module")
elif name == "run_calibration":
    assert Path(sys.argv[1]).read_text() == "module"
    assert len(list(Path(options["--dataset"]).glob("*.npz"))) == int(options["--input_num"])
    Path(options["-o"]).write_text("table")
elif name == "model_deploy":
    assert (options["--quantize"], options["--chip"]) == ("INT8", "bm1688")
    if Path(options["--calibration_table"]).read_text() == "table":
        sys.exit("no space left")
"""
"""Stands for the vendor's programs."""
INFERENCE = """from pathlib import Path
import pyruntime_bm
get_chip_from_model = get_kernel_mode_from_model = Path
def model_inference(inputs, model):
    assert pyruntime_bm.Model(model) == "bmodel"
    if inputs["x"][0] < 0:
        raise ValueError("negative")
    print("much")
    return {"y_Add_f32": 2 * inputs["x"]}
"""


def test_vendor_programs_get_the_files_of_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "tpu_mlir"
    tools = home / "python" / "tools"
    tools.mkdir(parents=True)
    for name in ("model_transform", "run_calibration", "model_deploy"):
        (tools / f"{name}.py").write_text(PROGRAM, encoding="utf-8")
    (tools / "model_runner.py").write_text(INFERENCE, encoding="utf-8")
    runtime = "import pathlib\ndef Model(path):\n    return pathlib.Path(path).read_text()\n"
    (home / "python" / "pyruntime_bm.py").write_text(runtime, encoding="utf-8")
    monkeypatch.setenv("TPU_MLIR_HOME", str(home))
    monkeypatch.setenv("VENDOR_PYTHON", sys.executable)
    ports = [onnx.helper.make_tensor_value_info(name, 1, [2]) for name in ("x", "y")]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Add", ["x", "x"], ["y"])], "g", ports[:1], ports[1:])
    opsets = [onnx.helper.make_opsetid("", 21)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10), tmp_path / "net.onnx")
    samples = [{"x": np.ones(2, np.float32)}] * 3
    with pytest.raises(VendorError, match="model_deploy failed: no space left"):
        quantize_tpu_mlir(tmp_path / "net.onnx", samples, tmp_path / "made")
    succeeds = 'Path(options["--model"]).write_text("bmodel")'
    (tools / "model_deploy.py").write_text(PROGRAM.replace('sys.exit("no space left")', succeeds), encoding="utf-8")
    run = quantize_tpu_mlir(tmp_path / "net.onnx", samples, tmp_path / "made")
    for values in ([1, 2], [3, 4]):
        outputs = run({"x": np.array(values, np.float32)})
        assert {name: array.tolist() for name, array in outputs.items()} == {"y": [2 * value for value in values]}
    with pytest.raises(VendorError, match="the simulator failed: ValueError: negative"):
        run({"x": np.array([-1, 2], np.float32)})
    monkeypatch.setattr(tpu_mlir, "SECONDS", 0)
    with pytest.raises(VendorError, match="model_transform took more than 0 s"):
        quantize_tpu_mlir(tmp_path / "net.onnx", samples, tmp_path / "made")


def test_outputs_of_the_vendor_are_those_of_the_model_in_its_order() -> None:
    arrays = {"a_b_Relu_f32": np.zeros(1), "a_Conv": np.ones(1), "removed_Add": np.full(1, 2)}
    found = named_outputs(arrays, ["a_b", "a", "c"])
    assert {name: int(array[0]) for name, array in found.items()} == {"a_b": 0, "a": 1, "c": 2}
    for names in (["a", "c", "a_b"], ["a_b", "a"]):
        with pytest.raises(VendorError, match="of the model are a_b_Relu_f32, a_Conv, removed_Add after compilation"):
            named_outputs(arrays, names)


def test_the_vendors_package_may_be_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TPU_MLIR_HOME", raising=False)
    with pytest.raises(ImportError, match="TPU_MLIR_HOME and VENDOR_PYTHON are not set"):
        quantize_tpu_mlir(tmp_path / "net.onnx", [], tmp_path)


def empty_page(folder: Path) -> Path:
    """Write a page whose section is empty."""
    page = folder / "page.md"
    page.write_text(f"<!-- trained: made by python -m {command.TOOL} -->\n<!-- end of trained -->\n", encoding="utf-8")
    return page


def test_command_updates_the_record_and_compares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows that the work folder has are not measured again."""
    monkeypatch.setattr(command, "RECORD", tmp_path / "record.json")
    monkeypatch.setattr(command, "PAGE", empty_page(tmp_path))
    call = [DETECTOR, "--quantizers", "default", "--work", str(tmp_path), "--cache", str(tmp_path)]
    append_row(tmp_path / "results.jsonl", row("default", 90.0))
    assert command.main([*call, "--update"]) == 0
    assert command.main(["--check"]) == 0
    append_row(tmp_path / "results.jsonl", row("default", 60.0))
    assert command.main([*call, "--compare"]) == 1
    assert "nudenet_320n, default, 0: 60.0 ± 2.0, recorded is 90.0 ± 2.0" in capsys.readouterr().out
    empty_page(tmp_path)
    assert command.main(["--check"]) == 1
    assert command.main(["--page"]) == 0 and command.main(["--check"]) == 0


def test_an_update_keeps_the_versions_of_packages_that_this_machine_does_not_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "RECORD", tmp_path / "record.json")
    monkeypatch.setattr(command, "PAGE", empty_page(tmp_path))
    monkeypatch.setattr(command, "facts", lambda packages: {"measured": "today", "nncf": ABSENT, "numpy": "2.5"})
    home = tmp_path / "site" / "tpu_mlir"
    (tmp_path / "site" / "tpu_mlir-1.2.3.dist-info").mkdir(parents=True)
    (tmp_path / "site" / "tpu_mlir-1.2.3.dist-info" / "METADATA").write_text("Name: tpu_mlir\nVersion: 1.2.3\n")
    Record({"numpy": "2.4", "nncf": "3.4"}, {}).write(tmp_path / "record.json", measured_names())
    append_row(tmp_path / "results.jsonl", row("default", 90.0))
    call = [DETECTOR, "--quantizers", "default", "--work", str(tmp_path), "--cache", str(tmp_path), "--update"]
    for variable, versions in ((None, {}), (str(home), {"tpu_mlir": "1.2.3"})):
        monkeypatch.delenv("TPU_MLIR_HOME", raising=False)
        if variable:
            monkeypatch.setenv("TPU_MLIR_HOME", variable)
        assert command.main(call) == 0
        assert Record.read(tmp_path / "record.json").facts == {"numpy": "2.5", "nncf": "3.4", **versions}


def test_networks_that_need_absent_test_data_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TPUCONVERT_TEST_DATA", str(tmp_path))
    measured: list[str] = []
    monkeypatch.setattr(command, "measure_missing", lambda wanted, folders: measured.extend(key[0] for key in wanted))
    assert command.main(["--quantizers", "default", "--work", str(tmp_path)]) == 0
    assert {"basic_pitch", "rapidocr_rec_v4", "silero_vad"} <= {*measured}
    assert not {DETECTOR, LANDMARKS, "magika", "rapidocr_det_v4"} & {*measured}
    message = capsys.readouterr().err
    assert "has no manifest.json" in message and DETECTOR in message
