"""In-toto statements about reproduced models."""

import hashlib
import json
from pathlib import Path

import pytest

import tpuconvert as tc
from tpuconvert.__main__ import main


@pytest.fixture
def reproducible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repository: Path) -> list[str]:
    """Arguments of ``reproduce`` for a converted model."""
    monkeypatch.chdir(tmp_path)
    digits = repository / "examples" / "digits"
    tc.convert(digits / "digits.onnx").save("digits.tpum")
    return [str(digits / "digits.onnx"), "digits.tpum"]


def test_statement_of_a_reproduction(reproducible: list[str]) -> None:
    assert main(["reproduce", *reproducible, "--statement", "s.json"]) == 0
    statement = json.loads(Path("s.json").read_text())
    digest = hashlib.sha256(Path("digits.tpum").read_bytes()).hexdigest()
    assert statement["subject"] == [{"name": "digits.tpum", "digest": {"sha256": digest}}]
    [source] = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    content = Path(reproducible[0]).read_bytes()
    assert source == {
        "name": "digits.onnx",
        "digest": {"sha256": hashlib.sha256(content).hexdigest()},
        "annotations": {"role": "source"},
    }
    assert statement["predicate"]["runDetails"]["builder"]["version"]["tpuconvert"] == tc.__version__
    first = Path("s.json").read_bytes()
    assert str(Path.cwd()).encode() not in first
    assert main(["reproduce", *reproducible, "--statement", "again.json"]) == 0
    assert Path("again.json").read_bytes() == first


def test_statement_is_one_for_in_toto(reproducible: list[str]) -> None:
    pytest.importorskip("in_toto_attestation", reason="oracle")
    from google.protobuf import json_format
    from in_toto_attestation.v1 import statement, statement_pb2

    assert main(["reproduce", *reproducible, "--statement", "s.json"]) == 0
    message = json_format.Parse(Path("s.json").read_text(), statement_pb2.Statement())
    statement.Statement.copy_from_pb(message).validate()


def test_no_statement_about_other_bytes(reproducible: list[str]) -> None:
    model = tc.load("digits.tpum")
    model.metadata["recipe"]["options"]["disable_rules"] = ["fold_scale_into_previous_linear"]
    model.save("changed.tpum")
    assert main(["reproduce", reproducible[0], "changed.tpum", "--statement", "s.json"]) == 5
    assert not Path("s.json").exists()
    assert main(["reproduce", *reproducible, "--statement", reproducible[1]]) == 2
