"""Nodes with 16 bits that are chosen by the error at the outputs (``int16-nodes``)."""

from collections.abc import Collection
from pathlib import Path

import numpy as np
import onnx
import pytest

import tpuconvert as tc
from tests.support.quantize.networks import Net, signal_to_noise
from tests.support.quantize.onnx_builder import OnnxNet
from tests.support.sampled import sampled
from tpuconvert.__main__ import main
from tpuconvert.conversion.options.options import group_options
from tpuconvert.optimizer.quantize import calibrate, forget_annotations, quantize
from tpuconvert.optimizer.quantize.lowering.wide_plan import plan_wide_values
from tpuconvert.optimizer.quantize.scales.annotate import activation_params
from tpuconvert.optimizer.quantize.search import int16_nodes
from tpuconvert.optimizer.quantize.search.float_simulation import simulate
from tpuconvert.optimizer.quantize.search.output_error import OutputError
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.types import I16, Array, Chip

SENSITIVE = "n0_conv"
GIVEN = {"quantize": "int8", "calibration_method": "minmax"}


def network(layers: int = 2) -> tuple[OnnxNet, str]:
    """A cheap depthwise conv whose operand can have spikes, a clip that removes their effect, and other layers."""
    net = OnnxNet(5)
    x = net.conv(net.input("x", 1, 8, 12, 12), 8, groups=8)
    assert x == SENSITIVE
    x = net.add("Clip", x, net.constant(np.float32(-3)), net.constant(np.float32(3)))
    for _ in range(layers):
        x = net.add("Relu", net.conv(x, 32))
    return net, net.dense(net.add("Flatten", net.add("GlobalAveragePool", x)), 10)


def images(count: int, spike: float, seed: int = 0) -> list[dict[str, Array]]:
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        image = rng.normal(size=(1, 8, 12, 12)).astype(np.float32)
        image[0, rng.integers(8), rng.integers(12), rng.integers(12)] += spike
        found.append({"x": image})
    return found


def chosen(model: tc.Model) -> list[str]:
    messages = [note.message for note in model.notes if note.kind == "int16-nodes"]
    return [message for message in messages if not message.startswith("none within ")]


def noise(net: OnnxNet, output: str, model: tc.Model, spike: float) -> float:
    with tc.Session(tc.convert(net.model(output))) as real, tc.Session(model) as session:
        runs = [(real.run(feed)[output], session.run(feed)[output]) for feed in images(16, spike, seed=9)]
    return signal_to_noise(*(np.concatenate(arrays) for arrays in zip(*runs, strict=True)))


def test_the_node_with_the_sensitive_operand_gets_16_bits() -> None:
    net, output = network()
    samples = images(40, 200.0)
    plain = tc.convert(net.model(output), calibration=samples, **group_options(without=["int16-nodes"], **GIVEN))
    model = tc.convert(net.model(output), calibration=samples, **group_options(**GIVEN))
    (note,) = chosen(model)
    assert note.startswith(f"1 node ('{SENSITIVE}') with 16 bits, 0.6% of the multiply-accumulates")
    assert "16-bit nodes: 1 node" in model.summary()
    value = model.graph.find("x:int16")
    assert value is not None
    assert value.dtype is I16
    assert noise(net, output, model, 200.0) > noise(net, output, plain, 200.0) + 6
    assert not chosen(plain)


@pytest.mark.parametrize(
    ("options", "is_chosen"),
    [
        ({"effort": "high"}, True),
        ({"effort": "high", "without": ["int16-nodes"]}, False),
        ({"effort": "low"}, False),
        ({"effort": "low", "max_int16_share": 0.05}, True),
        ({"exact_on": "bm1684x"}, False),
        ({"chip": "bm1684"}, False),
    ],
)
def test_options_with_the_choice(options: dict[str, object], is_chosen: bool) -> None:
    net, output = network()
    model = tc.convert(net.model(output), calibration=images(24, 200.0), **group_options(**GIVEN, **options))
    assert bool(chosen(model)) == is_chosen


def test_the_default_does_not_mention_networks_that_keep_8_bits() -> None:
    net, output = network(layers=6)
    model = tc.convert(net.model(output), calibration=images(16, 0.0), **group_options(**GIVEN))
    assert not [note for note in model.notes if note.kind == "int16-nodes"]


def test_accurate_and_large_networks_keep_8_bits_unless_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    net, output = network()
    samples = images(24, 200.0)
    for name, value in (("ACCURATE", 1.0), ("LEAST_WORK", 1.0)):
        with monkeypatch.context() as patch:
            patch.setattr(int16_nodes, name, value)
            assert not chosen(tc.convert(net.model(output), calibration=samples, **group_options(**GIVEN)))
            assert chosen(
                tc.convert(net.model(output), calibration=samples, **group_options(max_int16_share=0.05, **GIVEN))
            )


@pytest.mark.parametrize("to", ["tpu-mlir", "tpulang", "onnx"])
def test_the_default_can_be_exported(to: str, tmp_path: Path) -> None:
    net, output = network()
    model = tc.convert(net.model(output), calibration=images(24, 200.0), **group_options(**GIVEN))
    assert chosen(model)
    tc.export(model, tmp_path / ("out.onnx" if to == "onnx" else "out"), to=to)


def test_isolated_errors_are_those_of_one_operand() -> None:
    """The parts of a network add up to its error, and the operand with spikes has the largest one."""
    net, output = network()
    parts: dict[str, float] = {}
    fill = int16_nodes._fill

    def record(found: dict[str, float], *arguments: object) -> set[str]:
        parts.update(found)
        return fill(found, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(int16_nodes, "_fill", record)
        tc.convert(net.model(output), calibration=images(40, 200.0), **group_options(max_int16_share=1.0, **GIVEN))
    assert max(parts, key=parts.__getitem__) == SENSITIVE
    assert 0.7 < sum(parts.values()) < 1.3


@pytest.mark.parametrize(
    ("spike", "options"),
    sampled(
        [
            (0.0, {"max_int16_share": 0.05}),  # one of many tensors with the same error
            (200.0, {"max_int16_share": 0.004}),  # the node has 0.6 % of the multiply-accumulates
            (200.0, {"max_int16_share": 0.05, "without": ["int16-nodes"]}),
            (200.0, {"max_int16_share": 0.05, "precision": [f"{SENSITIVE}=int8"]}),
            (200.0, {"max_int16_share": 0.05, "precision": ["x=threshold:250"], "without": ["coarse-nodes"]}),
            (200.0, {"max_int16_share": 0.05, "keep_float": [SENSITIVE]}),
        ],
        every=2,
    ),
    ids=["no gain", "budget", "without", "int8 rule", "threshold rule", "float rule"],
)
def test_nothing_is_chosen(spike: float, options: dict[str, object]) -> None:
    net, output = network(layers=2 if spike else 6)
    samples = images(24, spike)
    model = tc.convert(net.model(output), calibration=samples, **group_options(**GIVEN, **options))
    assert not chosen(model)
    options = {**options, "max_int16_share": 0.0}
    plain = tc.convert(net.model(output), calibration=samples, **group_options(**GIVEN, **options))
    assert [str(node) for node in model.graph.nodes] == [str(node) for node in plain.graph.nodes]


def test_the_summary_states_that_nothing_was_chosen() -> None:
    net, output = network(layers=6)
    model = tc.convert(net.model(output), calibration=images(16, 0.0), **group_options(max_int16_share=0.05, **GIVEN))
    assert "16-bit nodes: none within 5.0% of the multiply-accumulates: the error at the outputs" in model.summary()


def test_the_choice_needs_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    net, output = network()
    monkeypatch.chdir(tmp_path)
    onnx.save(net.model(output), "net.onnx")
    np.save("samples.npy", np.concatenate([feed["x"] for feed in images(4, 0.0)]))
    assert main(["calibrate", "net.onnx", "--calibration", "samples.npy", "-o", "ranges.json"]) == 0
    assert main(["quantize", "net.onnx", "--ranges", "ranges.json", "--max-int16-share", "0.05", "-o", "a.tpum"]) == 2
    assert "max_int16_share needs samples to choose nodes with" in capsys.readouterr().err


def test_the_file_depends_neither_on_workers_nor_on_the_order_of_samples(tmp_path: Path) -> None:
    net, output = network()
    samples = images(24, 200.0)
    contents = []
    for index, (order, workers) in enumerate([(samples, 1), (samples[::-1], 1), (samples, 2)]):
        file = tmp_path / f"{index}.tpum"
        model = tc.convert(
            net.model(output), calibration=order, **group_options(workers=workers, max_int16_share=0.05, **GIVEN)
        )
        assert chosen(model)
        model.save(file)
        contents.append(file.read_bytes())
    assert contents[0] == contents[1] == contents[2]


def test_the_share_is_for_bm1686_without_exact_forms() -> None:
    net, output = network()
    for other, text in (({"chip": "bm1684"}, "chip=BM1684"), ({"exact_on": "bm1684x"}, "exact_on=bm1684x")):
        with pytest.raises(UsageError, match=f"max_int16_share with {text}: 16-bit nodes are for BM1686"):
            tc.convert(
                net.model(output),
                calibration=images(1, 0.0),
                **group_options(quantize="int8", max_int16_share=0.05, **other),
            )
    with pytest.raises(UsageError, match=r"max_int16_share is 1\.5, expected a number from 0 to 1"):
        tc.convert(net.model(output), quantize=tc.Quantization(max_int16_share=1.5), calibration=images(1, 0.0))


def test_simulated_other_users_read_the_8_bit_form() -> None:
    """One of two users of a tensor has 16 bits: only the other one sees the rounding to 8 bits."""
    net = Net()
    graph = net.done(*(net.conv(net.x, 4, name, relu=False) for name in ("wide", "narrow")))
    samples = net.samples()
    ranges = calibrate(graph, samples, "minmax")

    def errors(selected: Collection[str]) -> Array:
        reasons = quantize(graph, ranges, Chip.BM1686, channel_scales=False, wide=selected)
        plan = plan_wide_values(graph, selected, reasons, Chip.BM1686)
        narrow = {value.name: activation_params(ranges[value.name]) for value in plan.values}
        simulated = simulate(graph, plan, narrow)
        forget_annotations(graph)
        return OutputError(graph, Chip.BM1686, samples).measure(simulated).samples

    before, one, both = errors([]), errors(["wide"]), errors(["wide", "narrow"])
    np.testing.assert_allclose(one, before / 2, rtol=0.3)
    assert both.max() < 1e-3 * before.min()
