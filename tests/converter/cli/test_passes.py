"""``tpuconvert passes``, and the options of ``convert`` that trace the optimizer or disable rules."""

import json
from pathlib import Path

import numpy as np
import pytest

import tpuconvert as tc
from tpuconvert.__main__ import main
from tpuconvert.conversion.pass_instrumentation import Watch
from tpuconvert.optimizer.pipeline import known_names

Captured = pytest.CaptureFixture[str]

WRONG = '''
from tpuconvert.optimizer.engine.engine import rule
from tpuconvert.optimizer.engine.pattern import p
from tpuconvert.schema.ops.arithmetic_with_scalar import Muls
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.pool import Pool
from tpuconvert.schema.types import Scalar


@rule(p(Pool, "x", name="pool", where=lambda node: not isinstance(node.inputs[0].producer.op, Muls)), stage="fuse")
def half_the_pool(graph, m):
    """pool(x) is not pool(x / 2)."""
    return graph.add(m.pool.op, graph.add(Muls(Scalar.f32(0.5)), m.x))
'''


def test_passes_are_listed_in_running_order(capsys: Captured) -> None:
    assert main(["passes", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["order"] for row in rows] == sorted(row["order"] for row in rows)
    assert rows[0] == {
        "order": 1,
        "name": "remove_dead_nodes",
        "rule": "",
        "about": "Remove nodes and constants that no output depends on.",
    }
    assert {row["rule"] or row["name"] for row in rows} <= set(known_names())
    assert {name for name in known_names() if name not in {row["name"] for row in rows}} <= {
        row["rule"] for row in rows
    }
    assert "lower_softmax_to_exp_div" in {row["rule"] for row in rows if row["name"] == "chip lowering"}
    assert all(row["about"].endswith(".") for row in rows)
    assert main(["passes"]) == 0
    shown = capsys.readouterr()
    assert "fold_scale_into_previous_linear" in shown.out and "rules" in shown.err


def convert(digits: Path, *more: str) -> int:
    return main(["convert", str(digits / "digits.tflite"), "-o", "net.tpum", *more])


def test_a_rule_is_left_out(digits: Path, capsys: Captured) -> None:
    assert convert(digits, "--trace") == 0
    fired = [line.split(":")[0] for line in capsys.readouterr().err.splitlines() if ": fired" in line]
    assert "fold_permute_into_weights" in fired
    nodes = len(tc.load("net.tpum").graph)
    without = ["--disable-rule", "fold_permute_into_weights"]
    assert convert(digits, "--trace", *without) == 0
    assert "fold_permute_into_weights" not in capsys.readouterr().err
    assert len(tc.load("net.tpum").graph) > nodes
    model = tc.convert(digits / "digits.tflite", disable_rules=without[1:])
    assert len(model.graph) == len(tc.load("net.tpum").graph)


@pytest.mark.parametrize("option", ["--disable-rule", "--dump-after"])
def test_an_unknown_name_is_told_with_the_nearest(option: str, digits: Path, capsys: Captured) -> None:
    assert convert(digits, option, "merge_permute") == 2
    error = capsys.readouterr().err
    assert "no rule or pass 'merge_permute'" in error and "did you mean 'merge_permutes'?" in error
    assert not Path("net.tpum").exists()


def test_graphs_are_dumped_as_text_and_as_files(digits: Path, capsys: Captured) -> None:
    dumps = ["layout", "merge_permutes=p.txt", "canonicalize=c.tpum", "fuse_leaky_relu=never.txt"]
    assert convert(digits, *(part for name in dumps for part in ("--dump-after", name))) == 0
    error = capsys.readouterr().err
    assert "after layout: " in error and "no dump after fuse_leaky_relu: it changed nothing" in error
    assert "after merge_permutes: " in Path("p.txt").read_text()
    assert not Path("never.txt").exists()
    dumped, model = tc.load("c.tpum"), tc.load("net.tpum")
    assert len(dumped.graph) > len(model.graph)
    feed = {"image": np.random.default_rng(0).normal(size=model.inputs[0].shape).astype(model.inputs[0].dtype)}
    (want,), (found,) = (tuple(tc.Session(item).run(_outputs_by_name(item, feed)).values()) for item in (model, dumped))
    np.testing.assert_allclose(found, want, atol=1e-5)


def _outputs_by_name(model: tc.Model, feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return dict(zip((port.name for port in model.inputs), feed.values(), strict=True))


def test_validation_names_the_wrong_rule_of_a_plugin(digits: Path, capsys: Captured) -> None:
    from tpuconvert.optimizer.engine.registry import _RULES

    Path("wrong.py").write_text(WRONG)
    try:
        assert convert(digits, "--plugin", "wrong.py", "--validate") == 5
        error = capsys.readouterr().err
        assert "rule 'half_the_pool' changes output" in error and "node '" in error
        assert not Path("net.tpum").exists()
        samples, images = str(digits / "calibration.npz"), ("--preprocess", "color=GRAY,scale=0.0625,layout=NHWC")
        assert convert(digits, "--plugin", "wrong.py", "--validate-on", samples, *images) == 5
        capsys.readouterr()
        assert convert(digits, "--plugin", "wrong.py", "--validate", "--disable-rule", "half_the_pool") == 0
    finally:
        _RULES.pop("half_the_pool", None)


def test_validation_in_the_interface_of_python(digits: Path) -> None:
    lines: list[str] = []
    shape = tc.convert(digits / "digits.onnx").inputs[0].shape
    samples = [np.random.default_rng(0).normal(size=shape).astype(np.float32)]
    model = tc.convert(digits / "digits.onnx", watch=Watch(lines.append, validate=True, samples=samples))
    assert len(model.graph) <= len(tc.convert(digits / "digits.onnx", disable_rules=["merge_clamps"]).graph)
    with pytest.raises(tc.UsageError, match="no rule or pass 'no_such'"):
        tc.convert(digits / "digits.onnx", disable_rules=["no_such"])
