"""Decoders split into parts with static shapes: logits as the whole decoder, also in ONNX Runtime."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import tpuconvert as tc
from tests.support.networks.decoders import EXPLICIT, FORMS, GATHER_ND, LOOKUP, MICROSOFT, STANDARD, Decoder, decoder
from tests.support.onnx.exports import run as run_file
from tests.support.paired import paired
from tpuconvert.__main__ import main
from tpuconvert.conversion.options.options import group_options
from tpuconvert.exporters import decoder_check
from tpuconvert.exporters.decoder_check import (
    check_parts,
    check_tokens,
    compare_logits,
    run_parts,
    run_whole,
)
from tpuconvert.exporters.decoder_parts import Parts, split_decoder
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.errors import UnsupportedError, UsageError

CONTEXT = 16
SIZES = {"heads": 8, "hidden": 256}
"""The weights of most matmuls have at least 16384 elements, the fewest that --weight-type packs."""

FLOAT = 1e-5
"""Share of the range of the logits. The parts round as the whole in other places; 3e-7 was found."""

ROUNDED = 5e-3
"""The same where rounding changes a few integers of activations by 1; 2e-4 was found."""


def prompts(source: onnx.ModelProto, count: int = 3, tokens: int = 12) -> list[dict[str, Any]]:
    """Samples of all inputs of a decoder, with empty caches."""
    numbers = {"batch": 1, "sequence_length": tokens, "total_sequence_length": tokens, "past_sequence_length": 0}
    feeds = []
    for seed in range(count):
        feed: dict[str, Any] = {}
        for item in source.graph.input:
            dims = item.type.tensor_type.shape.dim
            shape = [numbers.get(dim.dim_param, dim.dim_value) for dim in dims]
            feed[item.name] = np.zeros(shape, np.float32)
        feed["input_ids"] = np.random.default_rng(seed).integers(0, 50, (1, tokens))
        feed["attention_mask"] = np.ones((1, tokens), np.int64)
        if "position_ids" in feed:
            feed["position_ids"] = np.arange(tokens)[None]
        feeds.append(feed)
    return feeds


def model_of(form: str, weights: str = "float", **settings: Any) -> tc.Model:
    """A converted random decoder."""
    source = decoder(form, **{**SIZES, **settings})
    options: dict[str, dict[str, Any]] = {
        "float": {},
        "w4a8": {"weight_type": "int4", "activation_type": "int8"},
        "w8": {"weight_type": "int8"},
        "int8": {"quantize": "int8", "calibration": prompts(source)} if weights == "int8" else {},
    }
    return tc.convert(source, **group_options(**options[weights]))


def run_exported(folder: Path, parts: Parts, tokens: list[int], prompt: int) -> Any:
    """Logits of exported ONNX files in ONNX Runtime."""
    return run_parts(parts, lambda part, feeds: run_file(folder / f"{part.name}.onnx", feeds), tokens, prompt)


@pytest.mark.parametrize("form", FORMS)
def test_parts_have_static_shapes_and_one_layer_each(form: str) -> None:
    parts = split_decoder(model_of(form), CONTEXT)
    assert [part.name for part in parts.prefill] == ["embedding", "block_0", "block_1"]
    assert [part.name for part in parts.decode] == ["embedding_cache", "block_cache_0", "block_cache_1"]
    for part in parts.all:
        assert all(value.type.is_static for value in part.graph.values), part.name
        part.graph.validate()
    ports = {port.name: (port.dtype, port.shape) for port in parts.decode[1].graph.input_ports}
    assert ports == {
        "input_states": ("float32", (1, 1, 128)),
        "position_ids": ("int32", (1, 1)),
        "attention_mask": ("float32", (1, 1, 1, CONTEXT + 1)),
        "history_k": ("float32", (1, 2, CONTEXT, 16)),
        "history_v": ("float32", (1, 2, CONTEXT, 16)),
    }
    results = {port.name: port.shape for port in parts.decode[1].graph.output_ports}
    assert results == {"hidden_states": (1, 1, 128), "past_k": (1, 2, 1, 16), "past_v": (1, 2, 1, 16)}
    assert [port.name for port in parts.prefill[1].graph.input_ports] == list(ports)[:3]
    matmuls = [sum(node.op.name == "matrix_mul" for node in part.graph.nodes) for part in parts.all]
    assert matmuls == [0, 7, 7, 0, 7, 7, 1]


@pytest.mark.parametrize(("weights", "form"), paired(["float", "w4a8", "w8", "int8"], list(FORMS)))
def test_logits_are_those_of_the_whole_decoder(form: str, weights: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    model = model_of(form, weights)
    parts = split_decoder(model, CONTEXT)
    check = check_parts(model, parts)
    limit = ROUNDED if weights == "w4a8" else FLOAT
    assert (check.prompt, check.tokens) == (6, 6)
    assert check.difference <= limit, check
    tc.export(model, tmp_path / "parts", to="onnx", decoder_context=CONTEXT)
    tokens, prompt = check_tokens(parts)
    whole = run_whole(model, tokens, prompt)
    found = compare_logits(run_exported(tmp_path / "parts", parts, tokens, prompt), whole, prompt)
    assert found.difference <= limit, found
    assert float(np.ptp(whole)) > 1


def test_every_token_up_to_the_context(tmp_path: Path) -> None:
    """The caches are full at the last token."""
    model = model_of(MICROSOFT)
    parts = split_decoder(model, 5)
    tokens = [4, 9, 1, 30, 7]
    sessions = {part.name: Session(part.graph) for part in parts.all}
    for prompt in (1, 4, 5):
        found = run_parts(parts, lambda part, feeds: sessions[part.name].run(feeds), tokens, prompt)
        assert compare_logits(found, run_whole(model, tokens, prompt), prompt).difference <= FLOAT


def test_manifest(tmp_path: Path) -> None:
    result = tc.export(model_of(STANDARD), tmp_path / "parts", to="onnx", decoder_context=CONTEXT)
    manifest = json.loads((tmp_path / "parts" / "export.json").read_text())
    assert manifest == result.manifest
    described = manifest["decoder"]
    assert described["prefill"] == ["embedding", "block_0", "block_1"] and described["head"] == "lm_head"
    assert (described["context"], described["cache_axis"]) == (CONTEXT, 2)
    assert described["mask"] == {"visible": 0.0, "hidden": -10000.0}
    assert 0 < described["check"]["difference"] <= FLOAT
    files = {path.name for path in (tmp_path / "parts").iterdir()} - {".files.json"}
    assert files == {"export.json", *manifest["programs"]} == {"export.json", *(p["file"] for p in described["parts"])}
    block = next(part for part in described["parts"] if part["name"] == "block_cache_1")
    assert block["caches"] == [
        {"source": "past_key_values.1.key", "input": "history_k", "output": "past_k"},
        {"source": "past_key_values.1.value", "input": "history_v", "output": "past_v"},
    ]
    written = onnx.load(tmp_path / "parts" / "block_cache_1.onnx").graph
    assert [item.name for item in written.input] == [item["name"] for item in block["inputs"]]
    assert "checked on 6 tokens at once and 6 one by one" in str(result)


def test_tables_of_angles_are_cut_to_the_context() -> None:
    parts = split_decoder(model_of(STANDARD, positions=4096), CONTEXT)
    constants = [value.shape for part in parts.all for value in part.graph.values if value.is_constant]
    assert {shape[0] for shape in constants if len(shape) == 2 and shape[1] == 8} == {CONTEXT + 1}


@pytest.mark.parametrize("context", [CONTEXT, 300])
def test_angles_that_are_computed_from_positions_become_tables(context: int) -> None:
    model = model_of(EXPLICIT, has_tables=False)
    parts = split_decoder(model, context)
    assert check_parts(model, parts).difference <= FLOAT
    operators = {node.op.name for part in parts.all for node in part.graph.nodes}
    assert "index_select" in operators and not operators & {"cos", "sin", "cast"}
    angles = np.arange(context + 1)[:, None] * np.tile(10000.0 ** (-np.arange(8) / 8), 2)
    tables = {value.array.tobytes() for value in parts.prefill[1].graph.values if value.shape == angles.shape}
    for function in (np.cos, np.sin):
        expected = function(angles)
        assert any(np.abs(np.frombuffer(t, np.float32).reshape(angles.shape) - expected).max() < 1e-4 for t in tables)


def test_context_beyond_the_table_of_angles() -> None:
    with pytest.raises(UnsupportedError, match="'cos' has 8 positions, the context needs 17") as error:
        split_decoder(model_of(STANDARD, positions=8), CONTEXT)
    assert "--decoder-context 7" in str(error.value)


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model_of(EXPLICIT).save(tmp_path / "decoder.tpum")
    file, folder = str(tmp_path / "decoder.tpum"), str(tmp_path / "parts")
    assert main(["export", file, folder, "--to", "onnx", "--decoder-context", "8"]) == 0
    assert "block_cache_0.onnx" in capsys.readouterr().out
    assert main(["export", file, folder, "--to", "onnx", "--decoder-context", "1"]) == 2


@pytest.mark.parametrize(("to", "weights", "node", "reason"), [
    ("tpulang", "float", "matrix_mul", "has no form of it in float"),
    ("tpulang", "w4a8", "matmul_group_quantized", "has no weights of 4 bits"),
    ("tpulang", "int8", "requant_fp32_to_int", "floating-point result"),
])  # fmt: skip
def test_targets_without_floats_name_the_nodes(to: str, weights: str, node: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=reason) as error:
        tc.export(model_of(STANDARD, weights), tmp_path / "parts", to=to, decoder_context=CONTEXT)
    assert node in {problem.op for problem in error.value.problems}
    assert {problem.hint for problem in error.value.problems} == {
        "export the decoder with --to onnx, or without --decoder-context"
    }
    assert not (tmp_path / "parts").exists()


def test_a_model_without_caches(repository: Path, tmp_path: Path) -> None:
    model = tc.convert(repository / "examples" / "digits" / "digits.onnx")
    with pytest.raises(UsageError, match="no key-value caches"):
        tc.export(model, tmp_path / "parts", to="onnx", decoder_context=CONTEXT)


def test_a_decoder_of_several_samples_is_refused() -> None:
    options = tc.SourceOptions(input_shapes={"input_ids": (2, "tokens")})
    with pytest.raises(UsageError, match="computes 2 samples at once, and the parts compute one"):
        split_decoder(tc.convert(decoder(EXPLICIT), source_options=options), CONTEXT)


@pytest.mark.parametrize("mask", [LOOKUP, GATHER_ND])
def test_masks_that_are_looked_up(mask: str) -> None:
    parts = split_decoder(tc.convert(decoder(EXPLICIT, mask=mask)), CONTEXT)
    assert [port.name for port in parts.decode[1].graph.input_ports[:3]] == [
        "input_states", "position_ids", "attention_mask"
    ]  # fmt: skip


def test_samples_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="samples were given"):
        tc.export(model_of(STANDARD), tmp_path / "parts", to="onnx", decoder_context=CONTEXT, data={"x": 1})


class SlidingWindow(Decoder):
    """A query attends to its last two keys only."""

    def _explicit_mask(self) -> None:
        super()._explicit_mask()
        visible = self.nodes.pop()
        past, new = self._extent(self.cache_names(0, "key")[0], 2), self._extent("input_ids", 1)
        total = self.add("Add", [past, new])
        query = self.add("Unsqueeze", [self.add("Range", [past, total, self._scalar(1)]), self.ints(1)])
        key = self.add("Unsqueeze", [self.add("Range", [self._scalar(0), total, self._scalar(1)]), self.ints(0)])
        near = self.add("Less", [self.add("Sub", [query, key]), self._scalar(2)])
        both = self.add("And", [visible.input[0], self.add("Unsqueeze", [near, self.ints(0, 1)])])
        self.add("Where", [both, "zero", "lowest"], ["mask"])


def test_masks_of_another_kind_are_named(tmp_path: Path) -> None:
    model = tc.convert(SlidingWindow(EXPLICIT, **SIZES).build())
    with pytest.raises(UnsupportedError, match="depends on 'attention_mask'") as error:
        tc.export(model, tmp_path / "parts", to="onnx", decoder_context=CONTEXT)
    assert "causal masks" in str(error.value)


@pytest.mark.parametrize("form", [STANDARD, MICROSOFT])
def test_mask_whose_extent_has_the_name_of_optimum(form: str) -> None:
    """Optimum names the tokens of the mask ``past_sequence_length + 1``, also with several new tokens."""
    source = decoder(form, **SIZES)
    (item,) = [item for item in source.graph.input if item.name == "attention_mask"]
    item.type.tensor_type.shape.dim[1].dim_param = "past_sequence_length + 1"
    model = tc.convert(source)
    assert check_parts(model, split_decoder(model, CONTEXT)).difference <= FLOAT


class Flattening(Decoder):
    """Residual sums have no batch axis, as in OPT."""

    def _norm(self, x: str, skip: str, name: str) -> tuple[str, str]:
        if skip:
            flat = [self.add("Reshape", [operand, self.ints(-1, self.width)]) for operand in (x, skip)]
            x = self.add("Reshape", [self.add("Add", flat), self.ints(1, -1, self.width)])
        return super()._norm(x, "", name)


def test_residual_sums_without_a_batch_axis() -> None:
    model = tc.convert(Flattening(EXPLICIT, **SIZES).build())
    parts = split_decoder(model, CONTEXT)
    assert {part.graph.output_ports[0].shape for part in parts.prefill} == {(1, CONTEXT, 128)}
    assert check_parts(model, parts).difference <= FLOAT


def test_caches_that_are_not_appended_to_are_named() -> None:
    source = Decoder(EXPLICIT, **SIZES)
    model = source.build()
    concat = next(node for node in model.graph.node if list(node.output) == ["present.0.key"])
    concat.output[0] = "joined"
    for node in model.graph.node:
        for index, name in enumerate(node.input):
            if name == "present.0.key":
                node.input[index] = "joined"
    model.graph.node.append(helper.make_node("Softmax", ["joined"], ["present.0.key"], axis=3))
    converted = tc.convert(model)
    with pytest.raises(UnsupportedError, match="is not the concat"):
        split_decoder(converted, CONTEXT)


def test_a_difference_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A decoder that uses positions in a way that the parts do not reproduce is never exported."""
    monkeypatch.setattr(decoder_check, "MASKED", 0.0)  # the parts attend to empty entries of the caches
    with pytest.raises(UsageError, match="differ from the whole"):
        tc.export(model_of(STANDARD), tmp_path / "parts", to="onnx", decoder_context=CONTEXT)
    assert not (tmp_path / "parts").exists()
