"""Layer groups and cost in ``inspect``."""

import json
from pathlib import Path

import pytest

import tpuconvert as tc
from tpuconvert.__main__ import main
from tpuconvert.exporters.program_digest import program_digest
from tpuconvert.schema.errors import UsageError

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def model(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    source = str(repository / "examples" / "digits" / "digits.onnx")
    assert main(["convert", source, "-o", "net.tpum"]) == 0
    return "net.tpum"


def test_groups_and_cost_as_text(model: str, capsys: Captured) -> None:
    assert main(["inspect", model, "--summary"]) == 0
    assert "on-chip" not in capsys.readouterr().out
    assert main(["inspect", model, "--summary", "--groups"]) == 0
    text = capsys.readouterr().out
    assert "in on-chip memory (32 lanes of 128.0 KiB)" in text
    assert "least time" not in text
    assert main(["inspect", model, "--cost"]) == 0
    text = capsys.readouterr().out
    assert "least time: " in text
    assert "MACs" in text


def test_groups_on_the_page(model: str, tmp_path: Path) -> None:
    assert main(["inspect", model, "--html", "net.html"]) == 0
    page = (tmp_path / "net.html").read_text()
    assert "<h3>Groups</h3>" in page
    assert "in on-chip memory (32 lanes of 128.0 KiB)" in page


def test_groups_and_cost_as_json(model: str, capsys: Captured) -> None:
    capsys.readouterr()
    assert main(["inspect", model, "--json"]) == 0
    cost = json.loads(capsys.readouterr().out)["cost"]
    assert cost["memory"] == {"lanes": 32, "lane_bytes": 131072, "row_bytes": 16}
    assert cost["groups"]
    assert 0 < cost["saved"] < 1
    assert cost["bytes"] == sum(
        part["bytes"] for part in (*cost["groups"], *(layer for layer in cost["layers"] if layer["group"] is None))
    )
    assert cost["seconds"] <= cost["seconds_node_by_node"]
    for group in cost["groups"]:
        assert group["lane_bytes"] <= 131072
        assert group["bytes"] < group["bytes_node_by_node"]


def test_wrong_use(repository: Path, capsys: Captured) -> None:
    source = str(repository / "examples" / "digits" / "digits.onnx")
    for option in ("--cost", "--groups"):
        assert main(["inspect", source, option]) == 2
        assert "convert it first" in capsys.readouterr().err


def proof_of(model: str, **changes: object) -> str:
    """Write a proof with cycles of the first convolution, of a load, and of an operation without a node."""
    graph = tc.load(model).graph
    layers = [
        {"operation": "tpu.Load", "tensor": "load_filter", "compute": 0, "transfer": 7},
        {"operation": "tpu.Conv2D", "tensor": first_convolution(model), "compute": 90, "transfer": 20},
        {"operation": "tpu.Conv2D", "tensor": first_convolution(model), "compute": 10, "transfer": 0},
        {"operation": "tpu.Cast", "tensor": "other", "compute": 3, "transfer": 0},
    ]
    cycles = {"total": 110, "compute": 103, "transfer": 27, "megahertz": 1000, "milliseconds": 1.1e-4, "layers": layers}
    proof = {"program_digest": program_digest(graph), "chip": "bm1684x", "is_accepted": True, "cycles": cycles}
    Path("proof.json").write_text(json.dumps({**proof, **changes}))
    return "proof.json"


def first_convolution(model: str) -> str:
    return next(node.name for node in tc.load(model).graph.nodes if node.op.name == "conv")


def test_cycles_of_a_compiled_export(model: str, capsys: Captured) -> None:
    proof = proof_of(model)
    inspection = tc.inspect(model, proof=proof)
    compiled = inspection.to_dict()["compiled"]
    index = [layer["name"] for layer in inspection.description["layers"]].index(first_convolution(model))
    assert (compiled["compute"][index], compiled["transfer"][index]) == (100, 20)
    assert compiled["compute"].count(None) == inspection.nodes - 1
    assert (compiled["other_compute"], compiled["other_transfer"]) == (3, 7)
    assert main(["inspect", model, "--proof", proof, "--summary"]) == 0
    assert "110 cycles on bm1684x" in capsys.readouterr().out
    assert main(["inspect", model, "--proof", proof_of(model, is_accepted=False), "--report", "net.json"]) == 0
    (block,) = json.loads(Path("net.json").read_text())["models"]
    assert block["nodes"]["compute_cycles"][index] == 100
    assert block["facts"]["compiled_cycles"] == 110
    assert main(["inspect", model, "--proof", proof, "--html", "net.html"]) == 0
    assert "110 cycles on bm1684x" in Path("net.html").read_text()
    assert "not to be used" in str(tc.inspect(model, proof=proof))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"program_digest": "0"}, "the proof of another model"),
        ({"cycles": None}, "the compiler wrote no profile"),
        ({"cycles": {"layers": []}}, "not a proof.json"),
        ({"cycles": []}, "not a proof.json"),
        ({"cycles": {"layers": [{"tensor": "x", "compute": -1, "transfer": 0}]}}, "expected a number of cycles"),
    ],
)
def test_proofs_without_cycles_of_the_model(
    changes: dict[str, object], message: str, model: str, capsys: Captured
) -> None:
    assert main(["inspect", model, "--proof", proof_of(model, **changes)]) in (2, 4)
    assert message in capsys.readouterr().err


def test_a_proof_for_a_source(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "proof.json").write_text("{}")
    with pytest.raises(UsageError, match="--proof for a source"):
        tc.inspect(repository / "examples" / "digits" / "digits.onnx", proof=tmp_path / "proof.json")
