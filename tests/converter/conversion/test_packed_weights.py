"""``weight_type``: float models with weights in 4 and 8 bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tpuconvert as tc
from tpuconvert.conversion.options.options import group_options
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.ops.matmul_group_quantized import MatmulGroupQuantized
from tpuconvert.schema.types import I8, Array
from tpuconvert.verify.difference import FLOAT_TOLERANCE
from tpuconvert.verify.verification import Thresholds

WIDTH, INNER = 160, 256
WIDE = 320


def network(rows: int | str = 4, inner: int = INNER) -> onnx.ModelProto:
    """Two linear layers with bias, a ReLU between them, and a residual."""
    rng = np.random.default_rng(0)
    shapes = {"w1": (WIDTH, inner), "b1": (inner,), "w2": (inner, WIDTH), "b2": (WIDTH,)}
    constants = [
        numpy_helper.from_array((rng.normal(size=shape) * 0.1).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["m1"], name="up"),
        helper.make_node("Add", ["m1", "b1"], ["h1"]),
        helper.make_node("Relu", ["h1"], ["r"]),
        helper.make_node("MatMul", ["r", "w2"], ["m2"], name="down"),
        helper.make_node("Add", ["m2", "b2"], ["h2"]),
        helper.make_node("Add", ["h2", "x"], ["y"]),
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, rows, WIDTH]) for name in "xy"]
    graph = helper.make_graph(nodes, "mlp", ports[:1], ports[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def samples(count: int, seed: int) -> list[dict[str, Array]]:
    rng = np.random.default_rng(seed)
    mix = np.random.default_rng(9).normal(size=(WIDTH, WIDTH)) * np.random.default_rng(8).lognormal(0, 1, WIDTH)
    return [{"x": (rng.normal(size=(1, 4, WIDTH)) @ mix).astype(np.float32)} for _ in range(count)]


def error_of(model: tc.Model) -> float:
    """Squared error against the float model, relative to its square."""
    with tc.Session(tc.convert(network())) as exact, tc.Session(model) as packed:
        pairs = [(exact.run(feed)["y"], packed.run(feed)["y"]) for feed in samples(20, 5)]
    return float(sum(np.square(a - b).sum() for a, b in pairs) / sum(np.square(a).sum() for a, _ in pairs))


@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("group", [32, 128])
@pytest.mark.parametrize("weight_type", ["int4", "int8"])
def test_error(weight_type: str, group: int, zero: bool) -> None:
    """The error of a weight is uniform in a step of 1/15 or 1/255 of the range of a group of normal numbers."""
    options = {"weight_type": weight_type, "weight_group": group, "weight_zero_points": zero}
    model = tc.convert(network(), **group_options(**options))
    ops = [node.op for node in model.graph.nodes if isinstance(node.op, MatmulGroupQuantized)]
    assert ops == [MatmulGroupQuantized(int(weight_type[3:]), group)] * 2
    # The range is at most 7 standard deviations: 3.5 for each side of a group of up to 128.
    step = 7 / (15 if weight_type == "int4" else 255)
    nearest = error_of(model)
    assert 0 < nearest < 2 * step**2 / 12  # twice: both layers add errors
    rounded = error_of(tc.convert(network(), calibration=samples(40, 4), **group_options(**options)))
    assert rounded < 0.7 * nearest


def test_file_is_smaller(tmp_path: Path) -> None:
    sizes = {}
    for weight_type in ("float32", "int8", "int4"):
        path = tmp_path / f"{weight_type}.tpum"
        tc.convert(network(inner=4096), packed_weights=tc.PackedWeights(weight_type=weight_type)).save(path)
        sizes[weight_type] = path.stat().st_size
    assert sizes["int8"] < sizes["float32"] * 0.275  # 8.5 of 32 bits with the scales
    assert sizes["int4"] < sizes["float32"] * 0.15  # 4.5 of 32 bits
    with tc.Session(tmp_path / "int4.tpum") as session:
        assert np.isfinite(session.run(samples(1, 0)[0])["y"]).all()


def test_note_states_size_and_error() -> None:
    (note,) = [
        note
        for note in tc.convert(network(), packed_weights=tc.PackedWeights(weight_type="int4")).content.notes
        if note.kind == "weights"
    ]
    count = 2 * WIDTH * INNER
    size = count // 2 + count // 32 * 2
    assert f"2 matmuls have weights in int4, with a scale per 32 inputs: {size / 1e6:.2f} MB" in note.message
    assert "4.50 bits per weight, rounded to nearest without samples" in note.message
    assert "Largest squared errors of their results: '" in note.message


def outlier_samples(count: int, seed: int) -> list[dict[str, Array]]:
    rng = np.random.default_rng(seed)
    scale = np.where(np.arange(WIDE) % 70 == 5, 20, 1)
    return [{"x": (rng.normal(size=(1, 4, WIDE)) * scale).astype(np.float32)} for _ in range(count)]


def test_notes_name_matmuls_that_stay_in_float() -> None:
    model = tc.convert(network(), packed_weights=tc.PackedWeights(weight_type="int4", weight_group=256))
    texts = [note.message for note in model.content.notes if note.kind == "weights"]
    assert [text for text in texts if "in float" in text] == [
        "1 matmul stays in float: 'h1:reshaped' has fewer than 256 inputs, one group"
    ]
    whole = tc.convert(network(), packed_weights=tc.PackedWeights(weight_type="int4"))
    assert not any("in float" in note.message for note in whole.content.notes)


@pytest.mark.parametrize("activation_type", ["float32", "int8"])
def test_outliers_have_a_second_group(activation_type: str) -> None:
    """Two matmuls share the operand with outliers; the result of the third one, their difference, has none."""
    rng = np.random.default_rng(0)
    shapes = {"w1": (WIDE, 80), "w2": (WIDE, 80), "w3": (80, 256)}
    constants = [
        numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name) for name, shape in shapes.items()
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["m1"]),
        helper.make_node("MatMul", ["x", "w2"], ["m2"]),
        helper.make_node("Sub", ["m1", "m2"], ["m3"]),
        helper.make_node("MatMul", ["m3", "w3"], ["y"]),
    ]
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 4, e]) for n, e in (("x", WIDE), ("y", 256))]
    graph = helper.make_graph(nodes, "pair", ports[:1], ports[1:], constants)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    samples = outlier_samples(80, 0)
    model = tc.convert(
        proto, packed_weights=tc.PackedWeights(weight_type="int4", activation_type=activation_type), calibration=samples
    )
    assert [node.op.name for node in model.graph.nodes].count("index_select") == 1
    (note,) = [note for note in model.content.notes if "bits per weight" in note.message]
    assert "2 have a second group for their 32 largest inputs" in note.message
    exact, packed = tc.Session(tc.convert(proto)), tc.Session(model)
    pairs = [(exact.run(feed)["y"], packed.run(feed)["y"]) for feed in outlier_samples(20, 1)]
    error = sum(np.square(a - b).sum() for a, b in pairs) / sum(np.square(a).sum() for a, _ in pairs)
    assert 0 < error < 0.02


def test_activations_in_int8() -> None:
    """The step of a value is 1/254 of the range of its group, and its error is added to the error of the weights."""
    models = [
        tc.convert(network(), packed_weights=tc.PackedWeights(weight_type="int8", activation_type=name))
        for name in ("float32", "int8")
    ]
    floats, integers = (error_of(model) for model in models)
    assert {node.op.activation_type for node in models[1].graph.nodes if isinstance(node.op, MatmulGroupQuantized)} == {
        I8
    }
    assert floats < integers < floats + 2 * (7 / 254) ** 2 / 12
    (_, note) = [note for note in models[1].content.notes if note.kind == "weights"]
    assert note.message == "2 matmuls have activations in int8, with a scale per row and group of inputs"


def test_verification_accepts_the_rounding_of_weights(tmp_path: Path) -> None:
    onnx.save(network(), tmp_path / "net.onnx")
    options = {"weight_type": "int8", "calibration": samples(20, 4)}
    tc.convert(tmp_path / "net.onnx", **group_options(**options)).save(tmp_path / "net.tpum")  # type: ignore[arg-type]  # by name
    found = tc.verify(tmp_path / "net.tpum", tmp_path / "net.onnx")
    assert found.failures(Thresholds(max_difference=FLOAT_TOLERANCE))
    assert not found.failures(found.defaults)


def test_rows_may_be_dynamic() -> None:
    with tc.Session(tc.convert(network("T"), packed_weights=tc.PackedWeights(weight_type="int4"))) as session:
        x = np.concatenate([feed["x"] for feed in samples(5, 1)], axis=1)
        whole = session.run({"x": x})["y"]
        parts = [session.run({"x": x[:, start : start + 1]})["y"] for start in range(x.shape[1])]
    assert np.concatenate(parts, axis=1).tobytes() == whole.tobytes()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weight_type": "int4", "quantize": "int8"}, "weight_type=int4 with quantize=int8"),
        ({"activation_type": "int8", "quantize": "int8"}, "activation_type=int8 with quantize=int8"),
        ({"activation_type": "int8"}, "activation_type=int8: the model has no matmul with packed weights"),
        ({"weight_type": "int3"}, "weight_type is 'int3'"),
        ({"weight_type": "int4", "weight_group": 48}, "weight_group is 48"),
        ({"weight_group": 64}, "weight_group without weight_type"),
        ({"embedding_type": "int4"}, "embedding_type without weight_type"),
        ({"weight_zero_points": True}, "weight_zero_points without weight_type"),
        ({"calibration": []}, "calibration samples without quantization"),
        ({"weight_type": "int4", "calibration": []}, "samples"),
    ],
    ids=str,
)
def test_refuses(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        tc.convert(network(), **group_options(**options))  # type: ignore[arg-type]  # by name


def test_refuses_a_model_without_large_weights() -> None:
    with pytest.raises(UsageError, match="no weight can be packed"):
        tc.convert(network(inner=8), packed_weights=tc.PackedWeights(weight_type="int4"))
