"""``--precision``, ``--keep-float``, ``--effort`` and ``--without`` on the bundled example."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml

import tpuconvert as tc
from tests.converter.cli.test_commands import SOURCES, int8, source
from tpuconvert.__main__ import main
from tpuconvert.ci.manifest import read_manifest
from tpuconvert.conversion.options.options import group_options
from tpuconvert.schema.graph.graph import Node

Captured = pytest.CaptureFixture[str]
PIXELS = "color=GRAY,scale=0.0625"

CONV1 = {"onnx": "conv1", "tflite": "conv1/relu", "caffe": "conv1"}
"""Name of the first convolution in the source. It is fused with a batch norm, except in TFLite."""


def convert(digits: Path, name: str, *options: str) -> tc.Model:
    """Convert with a tenth of the samples."""
    call = int8(digits, name, "net.tpum")
    call[call.index("--calibration") + 1] = few_samples(digits)
    assert main([*call, *options]) == 0
    return tc.load("net.tpum")


def few_samples(digits: Path) -> str:
    path = Path("few.npz")
    if not path.exists():
        np.savez(path, images=np.load(digits / "calibration.npz")["images"][:10])
    return str(path)


def of_source(model: tc.Model, name: str) -> list[Node]:
    return [node for node in model.graph.nodes if any(source.node == name for source in node.sources)]


def products(nodes: list[Node]) -> dict[str, str]:
    """Operator of every convolution and matmul, by the data type of its first operand."""
    linear = [node for node in nodes if len(node.inputs) > 1 and node.inputs[1] and node.inputs[1].is_constant]
    return {node.op.name: operand.dtype.value for node in linear if (operand := node.inputs[0]) is not None}


def bytes_with(digits: Path, *options: str) -> bytes:
    """Constants of the model in execution order; the recipe in the file depends on the options."""
    model = convert(digits, "onnx", *options)
    return b"".join(value.array.tobytes() for value in model.graph.values if value.is_constant)


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_node_stays_in_float(digits: Path, name: str, capsys: Captured) -> None:
    """A rule for a source node applies to the node that it was fused into."""
    assert products(of_source(convert(digits, name), CONV1[name])) == {"conv_v2": "UINT8"}
    capsys.readouterr()
    model = convert(digits, name, "--keep-float", CONV1[name])
    assert products(of_source(model, CONV1[name])) == {"conv": "FLOAT32"}
    assert f"a precision rule: {CONV1[name]}=float32" in capsys.readouterr().out
    assert products(of_source(model, "fc")) == {"matrix_mul_v2": "UINT8"}


@pytest.mark.parametrize("name", SOURCES)
def test_all_operators_of_a_type(digits: Path, name: str, capsys: Captured) -> None:
    """The later rule exempts one node; the notes count what each rule did."""
    model = convert(digits, name, "--precision", "op:*conv*=float32", "--precision", "*conv2*=int8", "--json")
    found = [(node.op.name, node) for node in model.graph.nodes if node.op.name.startswith("conv")]
    assert sorted(op for op, _ in found) == ["conv"] * 3 + ["conv_v2"]
    assert all(("conv2" in node.sources[0].node) == (op == "conv_v2") for op, node in found)
    kept = [note for note in model.content.notes if "a precision rule: op:*conv*=float32" in note.message]
    notes = [note["reason"] for note in json.loads(capsys.readouterr().out)["notes"] if note["kind"] == "precision"]
    assert len(notes) == 2
    assert notes[0].endswith(f": {len(kept)} in float")
    assert notes[1].startswith("'*conv2*=int8' selects ")


@pytest.mark.parametrize("name", SOURCES)
def test_a_range_of_nodes(digits: Path, name: str) -> None:
    model = convert(digits, name, "--precision", f"between {CONV1[name]} and pool=float32")
    assert products(model.graph.nodes) == {"conv": "FLOAT32", "matrix_mul_v2": "UINT8"}


def test_share_of_int8_changes(digits: Path, capsys: Captured) -> None:
    assert main([*int8(digits, "onnx", "net.tpum"), "--min-int8-share", "0.98"]) == 0
    assert main([*int8(digits, "onnx", "net.tpum"), "--min-int8-share", "0.98", "--keep-float", "conv1"]) == 5
    assert "are in integers, expected at least 0.98; in float: conv\n" in capsys.readouterr().err


def test_one_scale_for_all_weights(digits: Path) -> None:
    def scales(model: tc.Model) -> dict[str, int]:
        found = {node.sources[0].node: node.inputs[1] for node in model.graph.nodes if node.op.name == "conv_v2"}
        return {name: len(weight.quant.scale) for name, weight in found.items() if weight and weight.quant}

    model = convert(digits, "onnx", "--precision", "op:Conv=per-tensor", "--precision", "depthwise=per-channel")
    counts = scales(model)
    assert counts.pop("depthwise") > 1
    assert set(counts.values()) == {1}
    assert min(scales(convert(digits, "onnx")).values()) > 1


def test_threshold_of_a_fused_node_and_of_an_input(digits: Path, capsys: Captured) -> None:
    """The rule names a convolution. It has the scale of the fused ReLU, to which the rule applies too."""
    rules = ["--precision", "depthwise=threshold:2.55", "--precision", "image=threshold:0.51"]
    model = convert(digits, "onnx", *rules, "--without", "int16-nodes")
    scales = {value.name: value.quant.scale for value in model.graph.values if value.quant is not None}
    assert max(scales["depthwise/relu"]) == pytest.approx(0.01)
    assert scales["image:uint8"] == pytest.approx((0.002,))
    shown = capsys.readouterr().out
    assert "'depthwise=threshold:2.55' selects 1 node: 1 of 1 tensors with this range" in shown
    assert "'image=threshold:0.51' selects 1 input: 1 of 1 tensors with this range" in shown


def test_calibration_method_of_some_nodes(digits: Path) -> None:
    def scale(*options: str) -> float:
        model = convert(digits, "onnx", "--without", "coarse-nodes", *options)
        [quant] = [value.quant for value in model.graph.values if value.name == "conv2/relu"]
        assert quant is not None
        return max(quant.scale)

    everywhere = scale("--calibration-method", "percentile:90")
    assert everywhere < scale("--calibration-method", "percentile") <= scale("--calibration-method", "minmax")
    assert scale("--precision", "conv2=percentile:90") == everywhere
    assert scale("--precision", "conv2=percentile:90", "--precision", "*=mse") == scale()


def test_sixteen_bits_where_they_exist(digits: Path, capsys: Captured) -> None:
    convert(digits, "onnx", "--precision", "fc=int16", "--precision", "conv1=int16")
    assert "'conv1=int16' selects 1 node: 1 in int16" in capsys.readouterr().out
    call = [*int8(digits, "onnx", "other.tpum"), "--chip", "bm1684", "--precision", "conv1=int16"]
    assert main(call) == 2
    complaint = (
        "node 'conv1/bn': precision rule 'conv1=int16': no int16 form of conv: 'conv1/relu' takes 8-bit operands"
    )
    assert complaint in capsys.readouterr().err
    for rule, complaint in {
        "probability=int16": "node 'probability': precision rule 'probability=int16': no int16 form of softmax: stays",
        "probability=float16": "node 'probability': precision rule 'probability=float16': no float16 form of softmax",
    }.items():
        capsys.readouterr()
        assert main([*int8(digits, "onnx", "other.tpum"), "--precision", rule]) == 2
        assert complaint in capsys.readouterr().err
        assert not Path("other.tpum").exists()


WRONG = {
    "cnv1=float32": ("no node or tensor is named 'cnv1'", "did you mean 'conv1'?"),
    "op:Cnv=float32": ("no node has the operator 'op:Cnv'", "did you mean 'Conv'?"),
    "conv1/weight*=float32": ("no node or tensor is named 'conv1/weight*'", ""),
    "between pool and conv1=float32": ("there is no path from 'pool' to 'conv1'", "nearer to the inputs"),
    "between conv1 and pol=float32": ("no node or tensor is named 'pol'", "did you mean 'pool'?"),
    "image=float32": ("selects only inputs of the model", "a threshold applies to an input"),
    "pool=per-tensor": ("no selected node has constant weights (pool)", "op:conv"),
    "conv1": ("is not SELECTOR=SETTINGS", "--precision 'conv1=float32'"),
    "conv1=flot32": ("unknown setting 'flot32'", "did you mean 'float32'?"),
    "conv1=float32,int8": ("'float32' and 'int8' exclude each other", ""),
    "conv1=float32,minmax": ("'float32' and 'minmax' exclude each other", "settings of integers"),
    "conv1=float16,asymmetric": ("'float16' and 'asymmetric' exclude each other", "settings of integers"),
    "conv1=int16,asymmetric": ("'int16' and 'asymmetric' exclude each other", "16 bits are symmetric"),
    "conv1=asymetric": ("unknown setting 'asymetric'", "did you mean 'asymmetric'?"),
    "conv1=mse,threshold:3": ("'mse' and 'threshold:3' exclude each other", ""),
    "conv1=threshold:-1": ("'threshold:-1' is not a positive number", "threshold:6"),
    "conv1=percentile:101": ("expected a percentage", "percentile:99.99"),
    "conv1=mse:3": ("mse takes no number", "percentile:99.9"),
    "@absent.yaml": ("absent.yaml: no such file", ""),
}


@pytest.mark.parametrize("rule", WRONG)
def test_wrong_rules(digits: Path, rule: str, capsys: Captured) -> None:
    assert main([*int8(digits, "onnx", "net.tpum"), "--precision", rule]) == 2
    shown = capsys.readouterr().err
    assert all(part in shown for part in WRONG[rule])
    assert not Path("net.tpum").exists()


def test_per_channel_weights_on_bm1684(digits: Path, capsys: Captured) -> None:
    assert main([*int8(digits, "onnx", "net.tpum"), "--chip", "bm1684", "--precision", "op:conv=per-channel"]) == 2
    assert "node 'conv1/bn': precision rule 'op:conv=per-channel': BM1684 has one mul" in capsys.readouterr().err


def test_rules_need_a_quantization(digits: Path, capsys: Captured) -> None:
    call = ["convert", *source(digits, "onnx"), "-o", "net.tpum"]
    for options, name in {
        ("--precision", "conv1=float32"): "precision",
        ("--keep-float", "conv1"): "keep_float",
        ("--effort", "low"): "effort",
        ("--without", "bias-correction"): "without",
        ("--max-int16-share", "0.05"): "max_int16_share",
        ("--refinement-samples", "5"): "refinement_samples",
    }.items():
        assert main([*call, *options]) == 2
        assert f"{name} without quantization" in capsys.readouterr().err


def as_list(folder: Path) -> list[str]:
    folder.write_text(yaml.safe_dump(["op:conv=per-tensor", "fc=float32"]))
    return ["--precision", "@rules.yaml"]


def as_mapping(folder: Path) -> list[str]:
    folder.write_text(yaml.safe_dump({"op:conv": ["per-tensor"], "fc": "float32"}, sort_keys=False))
    return ["--precision", "@rules.yaml"]


def in_options(_: Path) -> list[str]:
    Path("options.yaml").write_text(yaml.safe_dump({"precision": {"op:conv": "per-tensor", "fc": "float32"}}))
    return ["--config", "options.yaml"]


def beside_options(_: Path) -> list[str]:
    Path("models").mkdir(exist_ok=True)
    Path("models/rules.json").write_text(json.dumps({"op:conv": "per-tensor"}))
    Path("models/options.yaml").write_text(yaml.safe_dump({"precision": ["@rules.json"], "keep-float": "fc"}))
    return ["--config", "models/options.yaml"]


def with_settings(_: Path) -> list[str]:
    Path("options.yaml").write_text(yaml.safe_dump({"precision": {"op:conv": ["per-tensor"], "fc": "int8"}}))
    return ["--config", "options.yaml", "--set", "precision.fc=float32"]


@pytest.mark.parametrize("given", [as_list, as_mapping, in_options, beside_options, with_settings])
def test_rules_in_files(digits: Path, given: Callable[[Path], list[str]]) -> None:
    typed = bytes_with(digits, "--precision", "op:conv=per-tensor", "--precision", "fc=float32")
    assert bytes_with(digits, *given(Path("rules.yaml"))) == typed


def test_data_types_and_symmetry_in_a_file_and_in_python(digits: Path) -> None:
    rules = {"*": ["asymmetric", "minmax"], "conv2": "int16", "fc": "float16", "image": {"threshold": 0.9}}
    Path("rules.yaml").write_text(yaml.safe_dump(rules, sort_keys=False))
    typed = ["*=asymmetric,minmax", "conv2=int16", "fc=float16", "image=threshold:0.9"]
    options = [part for rule in typed for part in ("--precision", rule)]
    wanted = bytes_with(digits, *options)
    assert bytes_with(digits, "--precision", "@rules.yaml") == wanted
    made = tc.convert(
        digits / "digits.onnx",
        quantize=tc.Quantization(precision=rules),
        calibration=few_samples(digits),
        preprocess=PIXELS,
    )
    assert b"".join(value.array.tobytes() for value in made.graph.values if value.is_constant) == wanted
    assert {node.output.dtype.value for node in made.graph.nodes} >= {"FLOAT16", "INT16", "UINT8"}


def test_a_manifest_takes_rules_and_their_files(digits: Path) -> None:
    Path("ci").mkdir()
    Path("ci/rules.yaml").write_text("{fc: float32}")
    entry = {"source": str(digits / "digits.onnx"), "quantize": "int8", "precision": "@rules.yaml"}
    Path("ci/models.yaml").write_text(yaml.safe_dump({"models": {"a": entry}}))
    [job] = read_manifest(Path("ci/models.yaml"))
    assert job.options["precision"] == ("fc=float32",)


def test_python_takes_rules_as_list_or_mapping(digits: Path) -> None:
    def model(**options: object) -> tc.Model:
        return tc.convert(
            digits / "digits.onnx",
            calibration=few_samples(digits),
            preprocess=PIXELS,
            **group_options(quantize="int8", **options),  # type: ignore[arg-type]  # by name
        )

    wanted = convert(digits, "onnx", "--precision", "conv2=threshold:3", "--keep-float", "conv1")
    for name, made in {
        "a.tpum": model(precision=["conv2=threshold:3"], keep_float=["conv1"]),
        "b.tpum": model(precision={"conv2": {"threshold": 3}}, keep_float="conv1"),
    }.items():
        made.save(name)
        assert Path(name).read_bytes() == Path("net.tpum").read_bytes()
    assert wanted.metadata["recipe"]["options"]["precision"] == ["conv2=threshold:3"]
    with pytest.raises(tc.UsageError, match=r"precision is '3' \(int\)"):
        model(precision=3)


def test_the_recipe_has_the_rules_of_a_file(digits: Path) -> None:
    convert(digits, "onnx", *as_mapping(Path("rules.yaml")), "--without", "bias-correction", "--effort", "low")
    assert tc.load("net.tpum").metadata["recipe"]["options"] == {
        "quantize": "int8",
        "precision": ["op:conv=per-tensor", "fc=float32"],
        "effort": "low",
        "without": ["bias-correction"],
    }
    Path("rules.yaml").unlink()
    call = ["reproduce", str(digits / "digits.onnx"), "net.tpum", "--calibration", few_samples(digits)]
    assert main(call) == 0


def test_a_rule_file_is_not_overwritten(digits: Path, capsys: Captured) -> None:
    rules = as_list(Path("rules.tpum"))
    assert main([*int8(digits, "onnx", "rules.tpum"), rules[0], "@rules.tpum"]) == 2
    assert "rules.tpum" in capsys.readouterr().err
    assert "per-tensor" in Path("rules.tpum").read_text()


def test_without_settings_the_file_is_the_same(digits: Path) -> None:
    convert(digits, "onnx")
    before = Path("net.tpum").read_bytes()
    convert(digits, "onnx", "--effort", "default", "--refinement-samples", "64")
    assert Path("net.tpum").read_bytes() == before


def test_every_algorithm_can_be_switched_off(digits: Path, capsys: Captured) -> None:
    """The algorithms change other integers: no two of the models are equal."""
    given = [
        [],
        ["--without", "channel-scales"],
        ["--without", "weight-rounding"],
        ["--without", "bias-correction"],
        ["--effort", "low"],
        ["--refinement-samples", "8"],
    ]
    models = [bytes_with(digits, *options) for options in given]
    assert len(set(models)) == len(models)
    both = ["--without", "weight-rounding", "--without", "bias-correction", "--without", "decision-paths"]
    assert bytes_with(digits, *both) == models[4]
    assert main([*int8(digits, "onnx", "net.tpum"), "--without", "rounding"]) == 2
    assert "there is no algorithm 'rounding'" in capsys.readouterr().err


def calibrate(digits: Path, *options: str) -> list[str]:
    """Measure ranges; return the arguments of ``quantize`` with them."""
    given = [str(digits / "digits.onnx"), "--preprocess", PIXELS]
    samples = ["--calibration", few_samples(digits)]
    assert main(["calibrate", *given, *samples, "-o", "ranges.json", *options]) == 0
    return ["quantize", *given, "--ranges", "ranges.json", "-o", "net.tpum"]


def test_low_effort_is_a_quantization_with_ranges_alone(digits: Path) -> None:
    assert main(calibrate(digits)) == 0
    ranged = b"".join(value.array.tobytes() for value in tc.load("net.tpum").graph.values if value.is_constant)
    assert bytes_with(digits, "--effort", "low") == ranged


def test_an_edited_threshold_is_used(digits: Path) -> None:
    call = calibrate(digits)
    content = json.loads(Path("ranges.json").read_text("utf-8"))
    content["ranges"]["conv2/relu"]["threshold"] = 1.275
    Path("ranges.json").write_text(json.dumps(content), "utf-8")
    assert main(call) == 0
    edited = tc.load("net.tpum")
    value = edited.graph.find("conv2/relu")
    assert value is not None and value.quant is not None
    assert max(value.quant.scale) == pytest.approx(0.005)
    calibrate(digits)
    assert main([*call, "--precision", "conv2/relu=threshold:1.275"]) == 0
    by_rule = tc.load("net.tpum")
    assert edited.graph.find("conv2/relu").quant == by_rule.graph.find("conv2/relu").quant  # type: ignore[union-attr]


def test_ranges_of_other_methods_are_refused(digits: Path, capsys: Captured) -> None:
    rule = ["--precision", "conv2=percentile:90"]
    assert main([*calibrate(digits), *rule]) == 2
    assert "requests percentile:90 for 'conv2/bn', its range was measured with auto" in capsys.readouterr().err
    assert main([*calibrate(digits, *rule), *rule]) == 0
    assert json.loads(Path("ranges.json").read_text("utf-8"))["methods"] == {
        "conv2/bn": "percentile:90",
        "conv2/relu": "percentile:90",
    }
    assert bytes_with(digits, "--effort", "low", *rule) == b"".join(
        value.array.tobytes() for value in tc.load("net.tpum").graph.values if value.is_constant
    )
