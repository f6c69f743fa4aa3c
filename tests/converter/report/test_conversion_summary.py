"""The summary of a conversion, and the details that ``inspect`` shows instead."""

from pathlib import Path

from tests.support.networks.small_models import model_of, scaled_and_shifted
from tpuconvert.model.notes import NoteDescription, note_lines
from tpuconvert.model.summary import port_lines
from tpuconvert.report.conversion_summary import KINDS, REASONS, summarize, summary_lines
from tpuconvert.schema.file.file_model import Note


def test_a_float_model(tmp_path: Path) -> None:
    model = model_of(scaled_and_shifted())
    model.save(tmp_path / "net.tpum")
    lines = summary_lines(summarize(model, tmp_path / "net.tpum", None, "look"))
    assert lines == [
        "small.onnx for BM1686, float (made by tpuconvert 0.0.0)",
        "  input   x  float32[1, 4]",
        "  output  y  float32[1, 4]",
        "  nodes   2: add, mul",
        f"wrote {tmp_path / 'net.tpum'} ({(tmp_path / 'net.tpum').stat().st_size:,} bytes)",
        "next: look",
    ]


def test_reasons_are_grouped_and_few(tmp_path: Path) -> None:
    notes = [Note("float", f"n{index}", f"mul: reason {index // 2}") for index in range(2 * REASONS + 4)]
    model = model_of(scaled_and_shifted(), notes=tuple(notes), quantize="int8")
    model.save(tmp_path / "net.tpum")
    summary = summarize(model, tmp_path / "net.tpum", None, "look")
    assert len(summary["notes"]) == REASONS + 2
    lines = summary_lines(summary)
    assert "  stays in float: mul x2 ('n0', 'n1'): reason 0" in lines
    assert f"  2 more reasons: tpuconvert inspect {tmp_path / 'net.tpum'} --summary" in lines
    assert any(line.startswith("  INT8    0 of 2 nodes") for line in lines)
    summary["operators"] = {f"op_{index}": 1 for index in range(KINDS + 3)}
    summary["transposes"] = 2
    lines = summary_lines(summary)
    assert lines[3].endswith(f"op_{KINDS - 1} and 3 other operators")
    assert "  transposes: 2 left" in lines


def test_reasons_leave_out_no_warning_and_no_task(tmp_path: Path) -> None:
    notes = [Note("preprocessing", "", f"finding {index}") for index in range(REASONS)]
    notes += [Note("source", "", "float16 is computed in float32")]
    notes += [Note("task", "", "output 'y': classes: 9 of 9 equal")]
    notes += [Note("float", "n", "mul: it has no integer form"), Note("chip", "n", "unfinished")]
    model = model_of(scaled_and_shifted(), notes=tuple(notes), quantize="int8")
    model.save(tmp_path / "net.tpum")
    lines = summary_lines(summarize(model, tmp_path / "net.tpum", None, "look"))
    assert [line for line in lines if line.startswith("  check the samples")] == [
        f"  check the samples: finding {index}" for index in range(REASONS)
    ]
    assert "  task of the outputs: output 'y': classes: 9 of 9 equal" in lines
    assert f"  3 more reasons: tpuconvert inspect {tmp_path / 'net.tpum'} --summary" in lines
    assert not any(line.startswith(("  stays in float", "  about the source", "  runs with")) for line in lines)


def test_inputs_with_numbered_names_share_a_line() -> None:
    ports = [
        {"name": f"past.{index}.{part}", "dtype": "float32", "shape": [1, 2, "past", 16], "quantization": None}
        for index in range(30)
        for part in ("key", "value")
    ]
    ids = {"name": "ids", "dtype": "int64", "shape": [1, "n"], "quantization": None}
    logits = {"name": "logits0", "dtype": "float32", "shape": [1, "n", 128], "quantization": None}
    other = {"name": "logits1", "dtype": "float32", "shape": [1, "n", 64], "quantization": None}
    assert port_lines({"inputs": [ids, *ports], "outputs": [logits, other]}) == [
        "  input   ids  int64[1, n]",
        "  input   past.0.key to past.29.key  float32[1, 2, past, 16]  (30 inputs)",
        "  input   past.0.value to past.29.value  float32[1, 2, past, 16]  (30 inputs)",
        "  output  logits0  float32[1, n, 128]",
        "  output  logits1  float32[1, n, 64]",
    ]


def test_unfinished_operators_share_a_line() -> None:
    notes: list[NoteDescription] = [
        {"kind": "chip", "node": "a", "message": "the vendor marks concat as unfinished on BM1686"},
        {
            "kind": "chip",
            "node": "b",
            "message": "attention consists of other operators: the vendor marks index_select as unfinished on BM1686",
        },
    ]
    (line,) = note_lines(notes, {"a": "concat", "b": "attention"})
    assert line.count("unfinished") == 1 and "concat, attention ('a', 'b')" in line
