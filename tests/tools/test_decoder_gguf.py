"""GGUF files of exported decoders, and the table of their times."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("gguf")
import gguf

from tools.bench.decoder_gguf import LINEAR, NORMS, Shape, interleaved, shape_of, write_gguf

WIDTH, HIDDEN, HEADS, GROUPS, HEAD, VOCABULARY = 64, 96, 4, 2, 16, 40
OUTPUTS = {"attn_k": GROUPS * HEAD, "attn_v": GROUPS * HEAD, "ffn_gate": HIDDEN, "ffn_up": HIDDEN}
"""Outputs of the linear layers; of the others, as many as the width."""


def export() -> onnx.ModelProto:
    """Parts of an export with the names of the TorchScript exporter: weights, their nodes, and a cache."""
    rng = np.random.default_rng(0)
    arrays = {"model.model.embed_tokens.weight": (VOCABULARY, WIDTH), "model.model.norm.weight": (WIDTH,)}
    arrays |= {f"model.model.layers.0.{name}.weight": (WIDTH,) for name in NORMS}
    nodes = []
    for number, (said, name) in enumerate(LINEAR.items()):
        inputs = HIDDEN if name == "ffn_down" else WIDTH
        arrays[f"onnx::MatMul_{number}"] = (inputs, OUTPUTS.get(name, WIDTH))
        path = f"/model/model/layers.0/{said}/MatMul"
        nodes.append(helper.make_node("MatMul", [f"x{number}", f"onnx::MatMul_{number}"], [f"y{number}"], name=path))
    tensors = [
        numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name) for name, shape in arrays.items()
    ]
    cache = helper.make_tensor_value_info("past_key_values.0.key", TensorProto.FLOAT, ["batch", GROUPS, "tokens", HEAD])
    return helper.make_model(helper.make_graph(nodes, "decoder", [cache], [], tensors))


def test_file_has_the_weights_of_the_export(tmp_path: Path) -> None:
    model, path = export(), tmp_path / "decoder.gguf"
    assert shape_of(model, 100) == Shape(1, WIDTH, HIDDEN, HEADS, GROUPS, HEAD, VOCABULARY, 100)
    kinds = gguf.GGMLQuantizationType
    write_gguf(model, path, context=100, weights=kinds.F32, embedding=kinds.Q8_0)
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    assert len(tensors) == len(model.graph.initializer)
    assert tensors["token_embd.weight"].tensor_type == kinds.Q8_0
    down = numpy_helper.to_array(model.graph.initializer[-1])
    np.testing.assert_array_equal(tensors["blk.0.ffn_down.weight"].data, down.T)
    query = numpy_helper.to_array(model.graph.initializer[4])
    np.testing.assert_array_equal(tensors["blk.0.attn_q.weight"].data, interleaved(query.T, HEAD))


def test_rotations_of_adjacent_elements_are_rotations_of_halves() -> None:
    """Turning pairs by the angle of their index gives the same numbers in both orders."""
    x = np.random.default_rng(0).normal(size=(2 * HEAD, 1))
    turns = np.exp(1j * np.arange(HEAD // 2))
    first, second = np.split(x.reshape(2, HEAD), 2, axis=1)
    halves = (first + 1j * second) * turns
    pairs = interleaved(x, HEAD).reshape(2, HEAD // 2, 2)
    np.testing.assert_array_equal((pairs[..., 0] + 1j * pairs[..., 1]) * turns, halves)


def test_table_has_medians_of_ratios(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("xllamacpp")
    pytest.importorskip("onnx_ir")
    from tools.bench.decoder_engines import print_rates

    rates = {("decode", "tpuconvert"): [6.0, 9.0, 8.0], ("decode", "llama.cpp"): [2.0, 9.0, 4.0]}
    rates["decode", "ONNX Runtime"] = [2.0, 2.0, 2.0]
    print_rates(rates, ["tpuconvert", "llama.cpp", "ONNX Runtime"])
    assert "| decode | 8 | 4 | 2 | 2.00 [1.00, 3.00] | 4.00 [3.00, 4.50] |" in capsys.readouterr().out
