"""Attribution of the error of INT8 models to their nodes, by the effect on the outputs."""

import dataclasses
import json
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import tpuconvert as tc
from tests.support.networks.broken_networks import Network, loud_channel, mixed_ranges, samples, weight_outlier
from tests.support.networks.compared_graphs import verify
from tests.support.networks.small_models import examples
from tests.support.paired import paired
from tpuconvert.__main__ import main
from tpuconvert.conversion.options.options import group_options
from tpuconvert.precision import isolated_error
from tpuconvert.precision.attribution import Attribution
from tpuconvert.precision.attribution_text import attribution_lines
from tpuconvert.progress import Progress
from tpuconvert.schema.errors import UsageError

Captured = pytest.CaptureFixture[str]

CHIPS = ("bm1684", "bm1686")
SEEDS = (0, 1, 2)
FLOOR = ["coarse-nodes", "int16-nodes"]
"""Algorithms that would repair the planted faults."""


def quantized(path: Path, chip: str = "bm1686", seed: int = 100) -> tc.Model:
    # These algorithms repair a part of the error that the tests look for, some of them almost all of it.
    without = ["reconstruction", "channel-scales", "balancing", "coarse-nodes", "two-term-weights", "int16-nodes"]
    return tc.convert(path, chip=chip, quantize=tc.Quantization(without=without), calibration=samples(seed))


@pytest.fixture
def outlier(tmp_path: Path) -> tuple[Path, tc.Model]:
    path = weight_outlier(tmp_path / "outlier.onnx", 0)
    return path, quantized(path)


class Steps(Progress):
    """Records the steps of each stage."""

    def __init__(self) -> None:
        self.totals: dict[str, int | None] = {}
        self.done: dict[str, list[int]] = {}

    def stage(self, name: str, total: int | None = None) -> None:
        self.totals[name], self.done[name] = total, []

    def advance(self, done: int) -> None:
        self.done[list(self.done)[-1]].append(done)


@pytest.mark.parametrize(("chip", "seed"), paired(CHIPS, SEEDS))
def test_a_weight_outlier_ranks_first(tmp_path: Path, chip: str, seed: int) -> None:
    path = weight_outlier(tmp_path / "outlier.onnx", seed)
    found = tc.attribute(quantized(path, chip), path, data=samples(200 + seed, 8))
    first, second, *_ = found.nodes
    assert (first.name, first.op, first.cause) == ("broken", "conv", "weights"), f"seed {seed}"
    assert first.rule == "--keep-float 'broken'"
    assert first.isolated.noise > 10 * second.isolated.noise, f"seed {seed}"
    assert first.isolated.noise > 0.5 * found.model.noise, f"seed {seed}"


@pytest.mark.parametrize(("chip", "seed"), paired(CHIPS, SEEDS))
def test_a_concat_of_mixed_ranges_ranks_first(tmp_path: Path, chip: str, seed: int) -> None:
    path = mixed_ranges(tmp_path / "mixed.onnx", seed)
    first = tc.attribute(quantized(path, chip), path, data=samples(200 + seed, 8)).nodes[0]
    assert (first.name, first.op, first.cause) == ("joined", "concat", "activations"), f"seed {seed}"
    assert first.keep_float == ("joined", "last")
    assert first.rule == "--keep-float 'joined' --keep-float 'last'"


@pytest.mark.parametrize(("write", "chip"), paired([weight_outlier, mixed_ranges, loud_channel], CHIPS))
def test_the_printed_rule_removes_the_error(write: Callable[[Path, int], Path], tmp_path: Path, chip: str) -> None:
    path = write(tmp_path / "net.onnx", 4)
    data = samples(204, 8)
    found = tc.attribute(quantized(path, chip), path, data=data)
    np.savez(tmp_path / "samples.npz", x=np.concatenate(samples(100)))
    call = ["convert", str(path), "-o", str(tmp_path / "net.tpum"), "--chip", chip, "--quantize", "int8"]
    calibration = ["--calibration", str(tmp_path / "samples.npz")]
    assert main([*call, *calibration, *shlex.split(found.nodes[0].rule)]) == 0
    fixed = tc.attribute(tmp_path / "net.tpum", path, data=data)
    assert fixed.model.noise < 0.25 * found.model.noise
    assert not {node.name for node in fixed.nodes} & set(found.nodes[0].keep_float)


def test_float_users_of_a_loud_channel_do_not_help_on_bm1684(tmp_path: Path) -> None:
    """The result of a conv has one scale in 16 bits too, in which the small channels are lost: the conv has to go."""
    path = loud_channel(tmp_path / "net.onnx", 4)
    rules = {chip: tc.attribute(quantized(path, chip), path, data=samples(204, 8)).nodes[0].rule for chip in CHIPS}
    users = "--keep-float 'scores' --keep-float 'pool'"
    assert rules == {"bm1684": f"{users} --keep-float 'last'", "bm1686": users}


@pytest.mark.parametrize(
    ("chip", "precision"),
    paired(CHIPS, ["second/relu=threshold:0.2", "second=threshold:2000", "second=percentile:50"]),
)
def test_a_range_that_does_not_fit_is_repaired_by_a_range_rule(precision: str, tmp_path: Path, chip: str) -> None:
    """A rule about the range is cheaper than float nodes."""
    network = Network(4)
    x = network.conv("second", network.conv("first", "x", 3, 16), 16, 16)
    network.classify(network.conv("last", x, 16, 16), 16)
    path = network.save(tmp_path / "net.onnx")
    data = samples(204, 8)
    options = {
        "chip": chip,
        "quantize": "int8",
        "calibration": samples(100),
        "without": FLOOR,
    }
    progress = Steps()
    model = tc.convert(path, **group_options(precision=[precision], **options))
    broken = tc.attribute(model, path, data=data, progress=progress)
    assert progress.totals["try rules"] >= 3  # one step per trial, not per node
    assert progress.done["try rules"] == list(range(1, progress.totals["try rules"] + 1))
    worst = broken.nodes[0]
    assert worst.rule == "--precision 'second/relu=auto'"
    assert worst.measured is not None and worst.measured.after > worst.measured.before + 6
    fixed = tc.attribute(
        tc.convert(path, **group_options(precision=[precision, "second/relu=auto"], **options)), path, data=data
    )
    assert fixed.model.noise < 0.25 * broken.model.noise


def test_local_noise_ranks_another_node_first(tmp_path: Path) -> None:
    """The rank by local noise names a conv whose result has almost no effect on the outputs."""
    path = mixed_ranges(tmp_path / "mixed.onnx", 0)
    model, source = quantized(path), tc.convert(path)
    feeds = [{"x": x} for x in samples(200, 8)]
    local = verify(source.graph, source.graph, model, feeds).worst[0].name
    found = tc.attribute(model, path, data=samples(200, 8))
    assert local != "joined"
    assert found.nodes[0].name == "joined"


@pytest.mark.parametrize("chip", CHIPS)
def test_the_only_integer_node_causes_the_whole_error(tmp_path: Path, chip: str) -> None:
    network = Network(3)
    network.constants = {"w": network.random.normal(size=(8, 3, 3, 3)), "b": network.random.normal(size=8)}
    network.nodes = [helper.make_node("Conv", ["x", "w", "b"], ["scores"], name="conv")]
    path = network.save(tmp_path / "conv.onnx")
    data = samples(5)
    model = tc.convert(path, chip=chip, quantize="int8", calibration=data)
    found = tc.attribute(model, path, data=data)
    (node,) = found.nodes
    assert node.name == "scores"
    # The biases of the model remove the mean error on the same samples, up to half a step of the bias. Weights that
    # compensate for a part of the operand's rounding error change another 1 %.
    assert node.isolated.noise == pytest.approx(found.model.noise, rel=2e-2)


def test_the_error_of_the_model_is_that_of_its_outputs(outlier: tuple[Path, tc.Model]) -> None:
    path, model = outlier
    data = samples(7, 12)
    found = tc.attribute(model, path, data=data)
    with tc.Session(tc.convert(path)) as floats, tc.Session(model) as integers:
        wanted = np.concatenate([floats.run({"x": x})["scores"] for x in data]).astype(np.float64)
        got = np.concatenate([integers.run({"x": x})["scores"] for x in data]).astype(np.float64)
    # The float network runs with other kernels, whose sums differ by a few ULP.
    assert found.model.noise == pytest.approx(np.square(wanted - got).sum() / np.square(wanted).sum(), rel=1e-3)
    assert found.model.flips == np.mean(wanted.argmax(1) != got.argmax(1))


def test_flips_are_the_share_of_samples_with_another_class(tmp_path: Path) -> None:
    path = weight_outlier(tmp_path / "outlier.onnx", 0)
    found = tc.attribute(quantized(path, "bm1684"), path, data=samples(200, 16))
    assert found.nodes[0].isolated.flips in {count / 16 for count in range(1, 17)}
    assert found.nodes[-1].isolated.flips == 0


def test_fewer_nodes_are_those_with_the_largest_error(outlier: tuple[Path, tc.Model]) -> None:
    path, model = outlier
    data = samples(8, 4)
    everything = tc.attribute(model, path, data=data)
    two = tc.attribute(model, path, data=data, nodes=2)
    assert two.integer_nodes == everything.integer_nodes == len(everything.nodes)
    assert len(two.nodes) == 2
    by_name = {node.name: node for node in everything.nodes}
    assert all(by_name[node.name] == node for node in two.nodes)
    assert two.nodes[0] == everything.nodes[0]


def test_results_do_not_depend_on_the_memory(outlier: tuple[Path, tc.Model], monkeypatch: pytest.MonkeyPatch) -> None:
    path, model = outlier
    whole = tc.attribute(model, path, data=samples(9, 4))
    monkeypatch.setattr(isolated_error, "MEMORY", 1)
    assert tc.attribute(model, path, data=samples(9, 4)) == whole


def test_a_file_gives_the_same_as_its_model(outlier: tuple[Path, tc.Model], tmp_path: Path) -> None:
    path, model = outlier
    model.save(tmp_path / "net.tpum")
    data = samples(9, 2)
    assert tc.attribute(tmp_path / "net.tpum", path, data=data) == tc.attribute(model, path, data=data)


def test_rules_quote_names_for_the_shell(outlier: tuple[Path, tc.Model]) -> None:
    path, model = outlier
    node = tc.attribute(model, path, data=samples(9, 1)).nodes[0]
    assert dataclasses.replace(node, keep_float=("it's",)).rule == "--keep-float 'it'\\''s'"


def test_random_samples_are_stated(outlier: tuple[Path, tc.Model]) -> None:
    path, model = outlier
    lines = attribution_lines(tc.attribute(model, path, samples=3).to_dict())
    assert lines[0].startswith("error at the outputs on 3 samples of random numbers: SQNR ")
    assert lines[0].endswith("; 6 of 6 integer nodes measured")


def refused(model: tc.Model, source: Path, **options: object) -> str:
    with pytest.raises(UsageError) as caught:
        tc.attribute(model, source, **options)  # type: ignore[arg-type]  # options by name
    return str(caught.value)


def test_numbers_below_one_are_refused(outlier: tuple[Path, tc.Model]) -> None:
    path, model = outlier
    assert "nodes is 0, expected at least 1" in refused(model, path, nodes=0)
    assert "there are no samples" in refused(model, path, samples=0)


def test_float_models_are_refused(outlier: tuple[Path, tc.Model]) -> None:
    path, _ = outlier
    assert "computes no tensor of the source in integers" in refused(tc.convert(path), path)


def test_another_source_is_refused(outlier: tuple[Path, tc.Model], tmp_path: Path) -> None:
    _, model = outlier
    assert "not the source of the first conversion" in refused(model, weight_outlier(tmp_path / "other.onnx", 1))


def test_quantized_sources_are_refused(data_root: Path) -> None:
    path = data_root / "models" / "sine_int8_tflite" / "model.tflite"
    assert "the source is quantized" in refused(tc.convert(path), path)


@pytest.fixture(scope="module")
def digits_int8(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Attribution]:
    """A command line for the bundled example, and the result of the function."""
    source, data = examples() / "digits.onnx", str(examples() / "calibration.npz")
    model = tc.convert(source, quantize="int8", calibration=data, preprocess="color=GRAY,scale=0.0625")
    file = tmp_path_factory.mktemp("digits") / "digits.tpum"
    model.save(file)
    call = ["attribute", str(source), str(file), "--data", data, "--samples", "4"]
    return call, tc.attribute(model, source, data=data, samples=4)


def test_the_command_prints_what_the_function_returns(
    digits_int8: tuple[list[str], Attribution], capsys: Captured
) -> None:
    call, found = digits_int8
    assert main(call) == 0
    assert capsys.readouterr().out == "\n".join(attribution_lines(found.to_dict())) + "\n"
    assert main([*call, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == found.to_dict()


@pytest.mark.parametrize("name", ["report.html", "report.txt", "report.json"])
def test_reports_contain_the_attribution(digits_int8: tuple[list[str], Attribution], name: str, tmp_path: Path) -> None:
    call, found = digits_int8
    assert main([*call, "--report", str(tmp_path / name)]) == 0
    text = (tmp_path / name).read_text(encoding="utf-8")
    if name == "report.html":
        assert "Error of each node at the outputs" in text
        assert all(f"--keep-float &#x27;{node.name}&#x27;" in text for node in found.nodes)
    elif name == "report.txt":
        assert "\n".join(attribution_lines(found.to_dict())) in text
    else:
        [model] = json.loads(text)["models"]
        assert model["attribution"]["integer_nodes"] == found.integer_nodes
        assert {node.rule for node in found.nodes} == set(model["nodes"]["fix"]) - {None}


def test_the_command_needs_source_and_model(tmp_path: Path, capsys: Captured) -> None:
    assert main(["attribute", str(examples() / "digits.onnx")]) == 2
    assert "FILE.tpum" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("write", "name", "chip", "seed"),
    paired([(weight_outlier, "broken", "bm1686"), *((mixed_ranges, "joined", chip) for chip in CHIPS)], SEEDS),
)
def test_the_broken_node_ranks_first_with_the_defaults(
    write: Callable[[Path, int], Path], name: str, chip: str, seed: int, tmp_path: Path
) -> None:
    """Reconstruction changes the weights after a broken node to compensate for it: this is not an error of their own.

    On BM1684 weights of two terms repair the outlier.
    """
    path = write(tmp_path / "net.onnx", seed)
    model = tc.convert(path, chip=chip, quantize=tc.Quantization(without=FLOOR), calibration=samples(100))
    assert tc.attribute(model, path, data=samples(200 + seed, 8)).nodes[0].name == name
