"""The check of the installation: a working one, one without the engine, and planted faults."""

import ast
import json
from importlib import metadata
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import tpuconvert as tc
from tests.support.syntax_trees import syntax_tree
from tpuconvert.__main__ import main
from tpuconvert.doctor import installation as module
from tpuconvert.requirements import Package
from tpuconvert.runtime.native.builder import loader
from tpuconvert.runtime.session.session import Session

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def schema(repository: Path) -> Any:
    return json.loads((repository / "docs" / "reference" / "schemas" / "doctor.schema.json").read_text())


def doctor(capsys: Captured, schema: Any) -> tuple[int, Any, str]:
    """Exit code, valid document and stderr of ``doctor --json``."""
    code = main(["doctor", "--json"])
    shown = capsys.readouterr()
    document = json.loads(shown.out)
    jsonschema.validate(document, schema)
    return code, document, shown.err


def test_this_installation_works(capsys: Captured, schema: Any) -> None:
    code, document, errors = doctor(capsys, schema)
    assert (code, errors, document["problems"]) == (0, "", [])
    assert document["version"] == metadata.version("tpuconvert")
    assert document["engine"]["instruction_set"] == loader.chosen_isa()
    assert document["self_test"] == {"samples": module.SAMPLES, "different": 0, "problem": ""}
    assert {package["name"]: package["installed"] for package in document["required"]}["numpy"] == np.__version__
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert "the installation works" in text
    assert f"numpy {np.__version__}" in text


def test_extras_are_those_of_the_metadata() -> None:
    found = tc.installation()
    assert {extra.name for extra in found.extras} == set(metadata.metadata("tpuconvert").get_all("Provides-Extra"))
    members = [*found.required, *(package for extra in found.extras for package in extra.packages)]
    assert len(members) == len(metadata.requires("tpuconvert") or [])


def test_without_the_engine(monkeypatch: pytest.MonkeyPatch, capsys: Captured, schema: Any) -> None:
    monkeypatch.setattr(loader, "extension", lambda: None)
    code, document, errors = doctor(capsys, schema)
    assert code == 7
    assert document["self_test"] is None
    assert "no native engine" in document["problems"][0]
    assert errors.startswith("error[TC7001]: ")


def test_an_engine_that_was_left_out_is_no_problem(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, schema: Any, tmp_path: Path
) -> None:
    """``setup.py`` writes the file with TPUCONVERT_NATIVE=off; tests/test_packaging.py checks that a wheel has it."""
    monkeypatch.setattr(loader, "extension", lambda: None)
    monkeypatch.setattr(loader, "__file__", str(tmp_path / "native" / "builder" / "loader.py"))
    (tmp_path / "native_left_out.txt").write_text("installed with TPUCONVERT_NATIVE=off\n")
    code, document, errors = doctor(capsys, schema)
    assert (code, document["problems"], document["self_test"], errors) == (0, [], None, "")
    assert document["engine"]["is_left_out"]
    assert main(["doctor"]) == 0
    assert "left out by TPUCONVERT_NATIVE=off; models run on NumPy" in capsys.readouterr().out


def test_an_engine_that_does_not_load(monkeypatch: pytest.MonkeyPatch, capsys: Captured, schema: Any) -> None:
    def fail() -> None:
        raise ImportError("undefined symbol: planted")

    monkeypatch.setattr(loader, "extension", fail)
    code, document, errors = doctor(capsys, schema)
    assert code == 7
    assert "undefined symbol: planted" in document["engine"]["problem"]
    assert "pip install --force-reinstall" in errors


def test_an_instruction_set_that_the_cpu_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(loader.ISA_VARIABLE, "planted")
    with pytest.raises(tc.MissingExtraError, match="planted"):
        tc.installation().check()


def test_a_missing_extra_is_no_problem(monkeypatch: pytest.MonkeyPatch, capsys: Captured, schema: Any) -> None:
    find = metadata.version

    def without_pillow(name: str) -> str:
        if name == "Pillow":
            raise metadata.PackageNotFoundError(name)
        return find(name)

    monkeypatch.setattr(metadata, "version", without_pillow)
    code, document, _ = doctor(capsys, schema)
    assert code == 0
    (images,) = (extra for extra in document["extras"] if extra["name"] == "images")
    assert images["install"] == "pip install 'tpuconvert[images]'"
    assert images["packages"][0]["installed"] is None
    assert main(["doctor"]) == 0
    assert images["install"] in capsys.readouterr().out


def test_an_old_required_package_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "requires", lambda _name: ["numpy>=99", 'Pillow>=1; extra == "images"'])
    with pytest.raises(tc.MissingExtraError, match=r"numpy .* \(needs >=99\)") as caught:
        tc.installation().check()
    assert caught.value.hint == "pip install 'numpy>=99'"


def test_a_planted_difference_fails(monkeypatch: pytest.MonkeyPatch, capsys: Captured, schema: Any) -> None:
    run = Session.run

    def run_with_fault(self: Session, *given: Any, **options: Any) -> Any:
        outputs = run(self, *given, **options)
        if self.backend == "native":
            for name, x in outputs.items():
                changed = np.frombuffer(bytearray(x.tobytes()), np.uint8)
                changed[0] ^= 1  # the lowest bit of the first element
                outputs[name] = changed.view(x.dtype).reshape(x.shape)
        return outputs

    monkeypatch.setattr(Session, "run", run_with_fault)
    code, document, errors = doctor(capsys, schema)
    assert code == 5
    assert document["self_test"]["different"] == module.SAMPLES
    assert errors.startswith("error[TC5001]: self-test: ")


def test_an_example_that_is_not_installed_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Path:
        raise tc.UsageError("the example is not part of this installation: planted")

    monkeypatch.setattr(module, "example_folder", fail)
    with pytest.raises(tc.ThresholdError, match="planted"):
        tc.installation().check()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["digits.onnx"], "digits.onnx: a model without --data"),
        (["--data", "calibration.npz"], "--data without MODEL"),
        (["--strict"], "--strict without MODEL"),
    ],
)
def test_half_a_call_is_an_error(
    arguments: list[str], message: str, repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(repository / "examples" / "digits")
    assert main(["doctor", *arguments]) == 2
    told = capsys.readouterr().err
    assert message in told
    model = arguments[0] if arguments == ["digits.onnx"] else "MODEL"
    assert f"tpuconvert doctor {model} --data SAMPLES" in told


def test_compilers_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("bin/tpuc-opt", "bin/planted++"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
        path.chmod(0o755)
    monkeypatch.setenv("TPU_MLIR_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", f"{tmp_path}/bin/planted++ -O2")
    assert module.find_vendor_compiler() == str(tmp_path / "bin" / "tpuc-opt")
    assert module.find_cxx_compiler() == str(tmp_path / "bin" / "planted++")
    monkeypatch.setenv("TPU_MLIR_HOME", str(tmp_path / "absent"))
    monkeypatch.setenv("CXX", "absent++")
    assert module.find_vendor_compiler() is module.find_cxx_compiler() is None


def test_compilers_are_those_of_the_build(repository: Path) -> None:
    tree = syntax_tree(repository / "setup.py")
    (value,) = (
        node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "COMPILERS"
    )
    assert ast.literal_eval(value) == module.COMPILERS


@pytest.mark.parametrize(
    ("found", "required", "fits"),
    [
        ("1.26", ">=1.26", True),
        ("1.9.4", ">=1.26", False),
        ("2.13.0+cpu", "==2.13.0", True),
        ("2.0", ">=2", True),
        ("2", ">=2.0.1", False),
        ("3.1", ">=1,<3", False),
        ("1", "", True),
        ("2.1rc1", ">=2", True),
        ("2.1rc1", ">=2.1", False),
        ("1.16.post1", ">=1.16", True),
        ("1.2", "~=1.1", True),
        ("unknown", ">=1", False),
    ],
)
def test_versions(found: str, required: str, fits: bool) -> None:
    assert Package("example", required, found).fits == fits


def test_requirements_of_other_platforms_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    requirements = [
        "numpy>=2",
        'absent>=1; python_version < "3"',
        'Pillow>=1; python_version > "3" and extra == "images"',
    ]
    monkeypatch.setattr(metadata, "requires", lambda _name: requirements)
    found = tc.installation()
    assert [package.name for package in found.required] == ["numpy"]
    assert [(extra.name, extra.packages[0].name) for extra in found.extras] == [("images", "Pillow")]
