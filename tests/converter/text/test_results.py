"""Results of the public functions: text, plain values, one line, and the display in a notebook."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.onnx.models import model, one, ramp
from tpuconvert.__main__ import main
from tpuconvert.conversion.quantization.ranges_file import read_ranges
from tpuconvert.schema.text.html_text import MOST_ROWS, notebook_html
from tpuconvert.text.result import Result

HOSTILE = "<script>alert(1)</script>\x1b[2J"


@pytest.fixture(scope="module")
def results(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    """One result of every kind that the bundled example gives."""
    digits = repository / "examples" / "digits"
    folder = tmp_path_factory.mktemp("results")
    source, samples, pixels = digits / "digits.onnx", digits / "calibration.npz", "color=GRAY,scale=0.0625"
    with np.load(digits / "digits.npz") as archive:
        chosen = archive["test"][:20]
        np.savez(folder / "labeled.npz", images=archive["images"][chosen], labels=archive["labels"][chosen])
    int8 = tc.convert(source, quantize=tc.Quantization(effort="low"), calibration=samples, preprocess=pixels, golden=1)
    int8.save(folder / "net.tpum")
    return {
        "check": tc.check(source),
        "inspect": tc.inspect(int8),
        "bench": tc.bench(int8, runs=1, warmup=0, profile=True),
        "verify": tc.verify(int8, source, data=samples, samples=1, oracle="none"),
        "attribute": tc.attribute(int8, source, data=samples, samples=1, nodes=2),
        "calibrate": tc.calibrate(
            source, calibration=samples, preprocess=pixels, quantization=tc.Quantization(calibration_method="minmax")
        ),
        "evaluate": tc.evaluate(int8, folder / "labeled.npz"),
        "export": tc.export(int8, folder / "net.onnx", to="onnx"),
        "doctor": tc.doctor(source, folder / "labeled.npz", preprocess=pixels),
        "installation": tc.installation(),
        "reproduce": tc.reproduce(folder / "net.tpum", source, calibration=samples),
        "device plan": tc.device_plan(int8, folder / "plan"),
        "device compare": tc.device_compare(int8, folder / "plan" / "expected.npz"),
        "device check": tc.device_check(int8),
        "ops": tc.ops(),
        "describe_op": tc.describe_op("conv"),
        "passes": tc.passes(),
    }


def test_results_print_well(results: dict[str, Result]) -> None:
    for name, result in results.items():
        assert isinstance(result, Result)
        assert str(result) == "\n".join(result.lines()) != "", name
        assert "\n" not in repr(result), name
        assert len(repr(result)) < 200, name
        json.dumps(result.to_dict())
        page = result._repr_html_()
        assert page.startswith("<div>"), name
        assert page.endswith("</div>"), name


def test_a_notebook_shows_the_variants_of_the_doctor(results: dict[str, Any]) -> None:
    page = results["doctor"]._repr_html_()
    assert results["doctor"].trial.variants[0].name in page
    assert "warning[" not in page  # warnings are rows of the table


def test_text_is_that_of_the_command(
    results: dict[str, Result], repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = str(repository / "examples" / "digits" / "digits.onnx")
    for arguments, result in (
        (["check", source], results["check"]),
        (["ops", "conv"], results["describe_op"]),
        (["passes"], results["passes"]),
    ):
        assert main(arguments) == 0
        assert capsys.readouterr().out == f"{result}\n"


def test_reports_contain_the_results(results: dict[str, Any], repository: Path, tmp_path: Path) -> None:
    model = tc.convert(repository / "examples" / "digits" / "digits.onnx")
    given = {"verification": "verify", "attribution": "attribute", "evaluation": "evaluate"}
    path = tc.report(model, tmp_path / "a.json", **{name: results[key] for name, key in given.items()})
    [written] = json.loads(path.read_text())["models"]
    assert set(given) <= set(written)
    assert written["verification"]["samples"] == results["verify"].samples
    assert written["attribution"]["integer_nodes"] == results["attribute"].integer_nodes
    assert written["evaluation"]["values"] == pytest.approx(results["evaluate"].values, rel=1e-4)
    page = tc.report(model, tmp_path / "b.html", evaluation=results["evaluate"]).read_text()
    assert "Measured on labeled samples" in page
    assert tc.report(model, tmp_path / "a.html", attribution=results["attribute"]).stat().st_size > 1000
    with pytest.raises(tc.UsageError, match="the suffix selects the format"):
        tc.report(model, tmp_path / "a.pdf")


def test_names_are_escaped() -> None:
    source = model([one("Relu", HOSTILE)], {HOSTILE: ramp(1, 3)}, ["y"])
    hostile = tc.convert(source)
    for shown in (hostile, hostile.graph, tc.inspect(hostile), tc.verify(hostile, source)):
        page = shown._repr_html_()
        assert "<script>" not in page
        assert "&lt;script&gt;" in page
        assert "\x1b" not in page


def test_long_tables_are_cut() -> None:
    page = notebook_html(["many"], [("name",), *((f"row{index}",) for index in range(MOST_ROWS + 7))])
    assert page.count("<tr>") == MOST_ROWS + 1
    assert "and 7 more" in page
    assert len(notebook_html([], [("name",), ("x" * 1000,)])) < 300


def test_functions_keep_their_names_beside_subpackages() -> None:
    code = """
import tpuconvert as tc
from tpuconvert.verify.verification import Verification
from tpuconvert.__main__ import main
from tpuconvert.conversion.quantization.ranges_file import MeasuredRanges
from tpuconvert.text.table import table
from tpuconvert import quantize, report, verify
assert all(map(callable, (tc.verify, tc.quantize, tc.report, tc.op_test, verify, quantize, report)))
assert dir(tc) == sorted(tc.__all__)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_ranges_file_has_a_line_for_each_entry(results: dict[str, Result], tmp_path: Path) -> None:
    """A user edits thresholds in it; the digest, which files of a conversion record, does not depend on the layout."""
    ranges = results["calibrate"]
    assert isinstance(ranges, tc.MeasuredRanges)
    ranges.save(tmp_path / "ranges.json")
    lines = (tmp_path / "ranges.json").read_text(encoding="utf-8").splitlines()
    found = json.loads("\n".join(lines))["ranges"]
    assert sum(line.startswith('   "threshold": ') for line in lines) == len(found)
    wide = next(item["channels"]["largest"] for item in found.values() if len(item["channels"]["largest"]) > 1)
    assert f'    "largest": {json.dumps(wide)},' in lines
    (tmp_path / "one_line.json").write_text(json.dumps(json.loads("\n".join(lines))), encoding="utf-8")
    assert read_ranges(tmp_path / "one_line.json").digest() == ranges.digest()
