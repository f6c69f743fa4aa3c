"""``tpuconvert ci``: rebuilds the models of a manifest, checks their limits and writes machine-readable reports."""

import json
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import numpy as np
import onnx
import pytest
import yaml

from tpuconvert.__main__ import check_files, main

Captured = pytest.CaptureFixture[str]

SARIF = {
    "type": "object",
    "additionalProperties": False,
    "required": ["$schema", "version", "runs"],
    "properties": {
        "$schema": {"type": "string", "format": "uri"},
        "version": {"const": "2.1.0"},
        "runs": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["tool", "results"],
                "properties": {
                    "tool": {
                        "type": "object",
                        "additionalProperties": False,
                        "required": ["driver"],
                        "properties": {
                            "driver": {
                                "type": "object",
                                "additionalProperties": False,
                                "required": ["name"],
                                "properties": {
                                    "name": {"type": "string"},
                                    "version": {"type": "string"},
                                    "informationUri": {"type": "string"},
                                    "rules": {
                                        "type": "array",
                                        "uniqueItems": True,
                                        "items": {
                                            "type": "object",
                                            "additionalProperties": False,
                                            "required": ["id"],
                                            "properties": {
                                                "id": {"type": "string"},
                                                "shortDescription": {"$ref": "#/$defs/message"},
                                            },
                                        },
                                    },
                                },
                            }
                        },
                    },
                    "results": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "additionalProperties": False,
                            "required": ["message"],
                            "properties": {
                                "ruleId": {"type": "string"},
                                "level": {"enum": ["none", "note", "warning", "error"]},
                                "message": {"$ref": "#/$defs/message"},
                                "locations": {
                                    "type": "array",
                                    "items": {
                                        "type": "object",
                                        "properties": {
                                            "physicalLocation": {
                                                "type": "object",
                                                "required": ["artifactLocation"],
                                                "properties": {
                                                    "artifactLocation": {
                                                        "type": "object",
                                                        "required": ["uri"],
                                                        "properties": {
                                                            "uri": {"type": "string", "pattern": "^[^\\\\]+$"}
                                                        },
                                                    }
                                                },
                                            }
                                        },
                                    },
                                },
                            },
                        },
                    },
                },
            },
        },
    },
    "$defs": {
        "message": {"type": "object", "required": ["text"], "properties": {"text": {"type": "string", "minLength": 1}}}
    },
}
"""Requirements of SARIF 2.1.0 (OASIS) on the parts that the report uses."""


def check_junit(text: str) -> ElementTree.Element:
    """Check that a JUnit report has the elements, attributes and order that CI systems expect."""
    root = ElementTree.fromstring(text)
    assert root.tag == "testsuites"
    for suite in root:
        assert suite.tag == "testsuite"
        assert {"name", "tests", "failures", "errors", "time"} <= suite.attrib.keys()
        cases = suite.findall("testcase")
        assert len(cases) == len(suite) == int(suite.attrib["tests"])
        assert int(suite.attrib["failures"]) == len(suite.findall("testcase/failure"))
        assert int(suite.attrib["errors"]) == len(suite.findall("testcase/error"))
        for case in cases:
            assert {"name", "classname", "time"} <= case.attrib.keys()
            assert [child.tag for child in case] in ([], ["system-out"], ["error"], ["failure", "system-out"])
            assert all("message" in child.attrib for child in case if child.tag in ("error", "failure"))
    return root


def write(models: dict[str, object], **top: object) -> None:
    Path("tpuconvert.yaml").write_text(yaml.safe_dump({**top, "models": models}))


@pytest.fixture
def models(digits: Path) -> dict[str, dict[str, object]]:
    """A manifest with two models of the bundled example."""
    return {
        "float": {"source": str(digits / "digits.onnx"), "output": "build/float.tpum"},
        "int8": {
            "source": str(digits / "digits.tflite"),
            "quantize": "int8",
            "calibration": str(digits / "calibration.npz"),
            "preprocess": "color=GRAY,scale=0.0625,layout=NHWC",
            "limits": {"cosine": 0.9, "size": "1MB", "transposes": 0},
        },
    }


def statuses(capsys: Captured, *arguments: str, code: int = 0) -> dict[str, dict[str, object]]:
    capsys.readouterr()
    assert main(["ci", "--jobs", "1", "--json", *arguments]) == code
    return {model["name"]: model for model in json.loads(capsys.readouterr().out)["models"]}


def test_only_what_changed_is_made_again(models: dict[str, dict[str, object]], capsys: Captured) -> None:
    write(models)
    first = statuses(capsys)
    assert {name: model["status"] for name, model in first.items()} == {"float": "made", "int8": "made"}
    assert Path("build/float.tpum").is_file()
    Path("build/float.tpum").unlink()
    assert {model["status"] for model in statuses(capsys).values()} == {"cached"}
    assert Path("build/float.tpum").is_file()
    models["int8"]["calibration_method"] = "minmax"
    write(models)
    assert [model["status"] for model in statuses(capsys).values()] == ["cached", "made"]


def test_another_name_of_the_chip_is_another_model(models: dict[str, dict[str, object]], capsys: Captured) -> None:
    """A model for BM1684X has the notes of this device, and the bytes of the command ``convert``."""
    models["float"]["chip"] = "bm1686"
    write({"float": models["float"]})
    statuses(capsys)
    models["float"]["chip"] = "bm1684x"
    write({"float": models["float"]})
    assert statuses(capsys)["float"]["status"] == "made"
    source = str(models["float"]["source"])
    assert main(["convert", source, "-o", "command.tpum", "--chip", "bm1684x"]) == 0
    assert Path("command.tpum").read_bytes() == Path("build/float.tpum").read_bytes()


def test_a_changed_limit_fails_that_model_and_makes_nothing(
    models: dict[str, dict[str, object]], capsys: Captured
) -> None:
    write(models)
    statuses(capsys)
    models["int8"]["limits"] = {"cosine": 1.0, "size": "1kB"}
    write(models)
    files = ["--junit", "junit.xml", "--sarif", "ci.sarif", "--markdown", "ci.md"]
    found = statuses(capsys, *files, code=5)
    assert [model["status"] for model in found.values()] == ["cached", "failed"]
    misses = found["int8"]["misses"]
    assert isinstance(misses, list)
    assert [miss["limit"] for miss in misses] == ["cosine", "size"]
    root = check_junit(Path("junit.xml").read_text())
    assert [case.attrib["name"] for case in root.iter("testcase") if case.find("failure") is not None] == ["int8"]
    sarif = json.loads(Path("ci.sarif").read_text())
    jsonschema.validate(sarif, SARIF)
    assert [result["ruleId"] for result in sarif["runs"][0]["results"]] == ["limit-cosine", "limit-size"]
    assert "| `int8` | **limit not kept** |" in Path("ci.md").read_text()


def test_errors_are_told_and_the_others_are_made(models: dict[str, dict[str, object]], capsys: Captured) -> None:
    Path("broken.onnx").write_bytes(b"\x08\x07 this is not a model")
    write({"broken": {"source": "broken.onnx", "output": "build/broken.tpum"}, **models})
    found = statuses(capsys, "--junit", "junit.xml", "--sarif", "ci.sarif", "--html", "ci.html", code=4)
    assert [model["status"] for model in found.values()] == ["error", "made", "made"]
    assert not Path("build/broken.tpum").exists()
    check_junit(Path("junit.xml").read_text())
    sarif = json.loads(Path("ci.sarif").read_text())
    jsonschema.validate(sarif, SARIF)
    (result,) = sarif["runs"][0]["results"]
    assert result["ruleId"] == "TC4001"
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "broken.onnx"
    page = Path("ci.html").read_text()
    assert "3 models, 1 with an error or a missed limit." in page
    assert '<a href="#m0" data-show="0">float</a>' in page and '<a href="#m1" data-show="1">int8</a>' in page
    assert "broken: TC4001" in page
    assert page.count('<article class="model"') == 2


def test_several_processes_give_the_same(models: dict[str, dict[str, object]], capsys: Captured) -> None:
    write(models)
    one = statuses(capsys)
    capsys.readouterr()
    assert main(["ci", "--jobs", "2", "--json", "--cache", "other"]) == 0
    two = {model["name"]: model for model in json.loads(capsys.readouterr().out)["models"]}
    for name, model in one.items():
        ours, theirs = ({**each["measures"], "seconds": 0} for each in (model, two[name]))  # type: ignore[dict-item]
        assert ours == theirs


def test_accuracy_and_latency(models: dict[str, dict[str, object]], digits: Path, capsys: Captured) -> None:
    with np.load(digits / "calibration.npz") as archive:
        images = archive["images"]
    np.savez("labeled.npz", images=images, labels=np.zeros(len(images), np.int64))
    limits = {"top1_drop": 0.5, "latency_ratio": 1e6}
    models["int8"] |= {"evaluation": "labeled.npz", "limits": limits, "min_int8_share": 0.5}  # not of the float model
    write({"int8": models["int8"]})
    measures = statuses(capsys)["int8"]["measures"]
    assert isinstance(measures, dict)
    assert 0 <= measures["top1"] <= 1
    assert measures["top1_drop"] == pytest.approx(measures["top1_float"] - measures["top1"])
    assert measures["latency_ratio"] > 0
    models["int8"]["limits"] = {"top1_drop": -1.0}
    write({"int8": models["int8"]})
    assert statuses(capsys, code=5)["int8"]["status"] == "failed"


def test_report_has_the_accuracy_of_each_model(
    models: dict[str, dict[str, object]], digits: Path, capsys: Captured
) -> None:
    """A model has the same description as with ``convert --verify --report``, also if it is from the cache."""
    int8 = models["int8"]
    with np.load(digits / "calibration.npz") as archive:
        images = archive["images"]
    np.savez("labeled.npz", images=images, labels=np.zeros(len(images), np.int64))
    write({"int8": int8 | {"evaluation": "labeled.npz", "samples": 4}})
    assert statuses(capsys, "--report", "ci.json")["int8"]["status"] == "made"
    (mine,) = json.loads(Path("ci.json").read_text())["models"]
    preprocess = "color=GRAY,scale=0.0625,layout=NHWC"
    options = ["--quantize", "int8", "--calibration", str(digits / "calibration.npz"), "--preprocess", preprocess]
    source = str(digits / "digits.tflite")
    assert main(["convert", source, "-o", "int8.tpum", *options, "--verify", "--report", "convert.json"]) == 0
    (other,) = json.loads(Path("convert.json").read_text())["models"]
    assert mine["verification"] == other["verification"]
    assert mine["nodes"].keys() == other["nodes"].keys()
    assert mine["nodes"]["sqnr"] == other["nodes"]["sqnr"]
    assert mine["evaluation"]["samples"] == len(images)
    assert statuses(capsys, "--report", "again.json", "--markdown", "x.md")["int8"]["status"] == "cached"
    assert Path("again.json").read_bytes() == Path("ci.json").read_bytes()
    assert statuses(capsys, "--report", "ci.html")["int8"]["status"] == "cached"
    page = Path("ci.html").read_text()
    noise = "Tensors with the most quantization noise"
    for title in ("Compared with the source", noise, "Measured on labeled samples"):
        assert f"{title}</h" in page, title


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("models: {}", "names no models"),
        ("models: {a: {sorce: x}}", "did you mean 'source'?"),
        ("models: {a: {chip: bm1684}}", "models.a: has no source"),
        ("models: {a: {source: m.onnx, chip: bm99}}", "models.a: "),
        ("models: {a: {source: m.onnx, limits: {cosin: 1}}}", "did you mean 'cosine'?"),
        ("models: {a: {source: m.onnx, limits: {size: big}}}", "is not a size"),
        ("models: {a: {source: m.onnx, limits: {cosine: yes}}}", "is not a number"),
        ("models: {a: {source: m.onnx, limits: {top1_drop: 0.1}}}", "needs 'evaluation'"),
        ("models: {a: {source: m.onnx, samples: 0}}", "is not a number of samples"),
        ("models: {a: {source: m.onnx, output: x.tpum}, b: {source: m.onnx, output: x.tpum}}", "the same file"),
        ("models: [1, 2]", "models: is not a mapping"),
        ("defaults: 3\nmodels: {a: {source: m.onnx}}", "defaults: is not a mapping"),
        ("models: {a: {source: m.onnx}}\nplugins: x.py", "plugins: is not a list"),
        ("a: [", "is not YAML"),
    ],
)
def test_what_is_wrong_with_a_manifest(content: str, message: str, capsys: Captured) -> None:
    Path("m.onnx").write_bytes(b"")
    Path("tpuconvert.yaml").write_text(content)
    assert main(["ci"]) == 2
    error = capsys.readouterr().err
    assert "tpuconvert.yaml" in error
    assert message in error
    assert not Path(".tpuconvert-cache").exists()


def test_wrong_calls(models: dict[str, dict[str, object]], capsys: Captured) -> None:
    assert main(["ci"]) == 2
    assert "tpuconvert.yaml: no such file" in capsys.readouterr().err
    write(models)
    assert main(["ci", "--only", "nothing*"]) == 2
    assert "the manifest has float, int8" in capsys.readouterr().err
    assert main(["ci", "--junit", "no/folder.xml"]) == 2
    assert main(["ci", "--jobs", "0"]) == 2


def test_chosen_models_only(models: dict[str, dict[str, object]], capsys: Captured) -> None:
    write(models)
    assert list(statuses(capsys, "--only", "fl*")) == ["float"]


def test_damaged_cache_is_made_again(models: dict[str, dict[str, object]], capsys: Captured) -> None:
    write({"float": models["float"]})
    statuses(capsys)
    (kept,) = Path(".tpuconvert-cache").glob("*/*.json")
    kept.write_text("{")
    assert statuses(capsys)["float"]["status"] == "made"


def test_summary_page_of_a_job(
    models: dict[str, dict[str, object]], capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    Path("summary.md").write_text("# before\n")
    write({"float": models["float"]})
    statuses(capsys)
    assert Path("summary.md").read_text().startswith("# before\n| model |")


@pytest.mark.slow
def test_five_models_of_the_data_set(data_root: Path, capsys: Captured) -> None:
    folders = data_root / "models"
    names = ("cifar10_resnet8_onnx", "mnist_keras_onnx", "sine_float_tflite", "kws_dscnn_int8_tflite")
    models: dict[str, object] = {name: {"source": str(next((folders / name).glob("model.*")))} for name in names}
    lenet = folders / "lenet_mnist_caffe"
    models["lenet"] = {"source": str(lenet / "deploy.prototxt"), "weights": str(lenet / "model.caffemodel")}
    write(models, defaults={"limits": {"cosine": 0.99}})
    assert {model["status"] for model in statuses(capsys).values()} == {"made"}
    assert {model["status"] for model in statuses(capsys).values()} == {"cached"}


def test_files_of_a_commit(digits: Path, capsys: Captured) -> None:
    assert check_files([str(digits / "digits.onnx"), str(digits / "digits.tflite")]) == 0
    Path("broken.tflite").write_bytes(b"no model")
    assert check_files(["broken.tflite", str(digits / "digits.onnx")]) == 4
    assert "broken.tflite" in capsys.readouterr().err


@pytest.fixture
def inaccurate(tmp_path: Path) -> dict[str, dict[str, object]]:
    """A manifest with an INT8 model whose output ``wave``, a sine of large numbers, is below the accuracy limits."""
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(8, 6)).astype(np.float32)
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "w"], ["product"]),
        onnx.helper.make_node("Sin", ["product"], ["wave"]),
    ]
    graph = onnx.helper.make_graph(
        nodes,
        "net",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 8])],
        [onnx.helper.make_tensor_value_info("wave", onnx.TensorProto.FLOAT, [1, 6])],
        [onnx.numpy_helper.from_array(30 * weights, "w")],
    )
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), "wave.onnx"
    )
    np.savez("samples.npz", x=rng.normal(size=(32, 8)).astype(np.float32))
    without = ["coarse-nodes", "int16-nodes"]
    given = {"source": "wave.onnx", "quantize": "int8", "calibration": "samples.npz", "without": without}
    return {"wave": {**given, "output": "wave.tpum"}}


def test_an_inaccurate_output_fails_unless_the_manifest_accepts_it(
    inaccurate: dict[str, dict[str, object]], capsys: Captured
) -> None:
    write(inaccurate)
    files = ["--junit", "junit.xml", "--sarif", "ci.sarif", "--markdown", "ci.md"]
    found = statuses(capsys, *files, code=5)["wave"]
    (miss,) = found["misses"]
    assert found["status"] == "failed" and miss["limit"] == "inaccurate_outputs"
    assert miss["message"].startswith("output 'wave': mean cosine")
    check_junit(Path("junit.xml").read_text())
    sarif = json.loads(Path("ci.sarif").read_text())
    jsonschema.validate(sarif, SARIF)
    assert [result["ruleId"] for result in sarif["runs"][0]["results"]] == ["limit-inaccurate_outputs"]
    for accepted in (["wave"], "wave"):
        inaccurate["wave"]["inaccurate_outputs"] = accepted
        write(inaccurate)
        assert statuses(capsys)["wave"]["status"] == "cached"
    del inaccurate["wave"]["inaccurate_outputs"]
    write(inaccurate)
    assert statuses(capsys, code=5)["wave"]["status"] == "failed"


def test_accepted_outputs_are_those_of_the_model(inaccurate: dict[str, dict[str, object]], capsys: Captured) -> None:
    inaccurate["wave"]["inaccurate_outputs"] = ["waves"]
    write(inaccurate)
    assert "there is no output 'waves'" in str(statuses(capsys, code=2)["wave"]["error"])
    inaccurate["wave"]["inaccurate_outputs"] = {"wave": 1}
    write(inaccurate)
    assert main(["ci", "--jobs", "1"]) == 2
    assert "models.wave.inaccurate_outputs: is not a list of names" in capsys.readouterr().err
