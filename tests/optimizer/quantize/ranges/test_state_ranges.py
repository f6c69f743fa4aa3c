"""Ranges of the states of an INT8 model: caches are empty in calibration samples, but not when the model runs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.networks.decoders import FORMS, MICROSOFT, Decoder
from tpuconvert.optimizer.quantize.ranges.ranges import Channels, Range
from tpuconvert.optimizer.quantize.ranges.state_ranges import join_ranges, tie_state_ranges
from tpuconvert.schema.graph.graph import Graph, Port
from tpuconvert.schema.ops.arithmetic import Add
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.types import F32, Array, TensorType

PROMPT, TOKENS = 6, 18


def prompts(builder: Decoder, count: int = 20, tokens: int = 12) -> list[dict[str, Any]]:
    """Samples of all inputs, with empty caches."""
    feeds = []
    for seed in range(count):
        feed: dict[str, Any] = {
            "input_ids": np.random.default_rng(seed).integers(0, builder.vocabulary, (1, tokens)),
            "attention_mask": np.ones((1, tokens), np.int64),
        }
        if builder.form != MICROSOFT:
            feed["position_ids"] = np.arange(tokens)[None]
        for layer in range(builder.layers):
            for part in ("key", "value"):
                name, _ = builder.cache_names(layer, part)
                feed[name] = np.zeros((1, builder.kv_heads, 0, builder.size), np.float32)
        feeds.append(feed)
    return feeds


def decode(model: tc.Model, ids: Array) -> Array:
    """Logits [tokens, vocabulary] of a prompt, and of the tokens after it one by one with the caches."""
    with tc.Session(model) as session:
        found = [session.run({"input_ids": ids[:, :PROMPT]})["logits"][0, -1]]
        found += [
            session.run({"input_ids": ids[:, index : index + 1]})["logits"][0, 0] for index in range(PROMPT, TOKENS)
        ]
    return np.stack(found)


def cosines(first: Array, second: Array) -> Array:
    norms = np.linalg.norm(first, axis=-1) * np.linalg.norm(second, axis=-1)
    found: Array = (first * second).sum(-1) / norms
    return found


@pytest.mark.parametrize(
    ("form", "with_file"),
    [(MICROSOFT, True), *(pytest.param(form, False, marks=pytest.mark.slow) for form in FORMS)],
)
def test_tokens_decoded_with_caches_are_as_exact_as_a_prompt(form: str, with_file: bool, tmp_path: Path) -> None:
    """The limit is between the cosine with tied ranges, at least 0.995, and 0.13 with caches clipped to [-1, 1]."""
    builder = Decoder(form)
    source = builder.build()
    samples = prompts(builder)
    if with_file:
        path = tmp_path / "ranges.json"
        tc.calibrate(source, calibration=samples).save(path)
        quantized = tc.quantize(source, ranges=path)
    else:
        quantized = tc.convert(source, quantize="int8", calibration=samples)
    asked = [
        note
        for note in quantized.notes
        if note.kind not in ("source", "decoding") and "past_key_values" in note.message
    ]
    assert not asked, "no note asks for samples with other caches"
    real = tc.convert(source)
    ids = np.random.default_rng(99).integers(0, builder.vocabulary, (1, TOKENS))
    assert cosines(decode(real, ids), decode(quantized, ids)).min() > 0.99


def cache_graph() -> Graph:
    """``y = concat(x, new)`` after a permutation and back, with another result of the cache."""
    graph = Graph("cache", "cache")
    shape = (1, 2, "n", 4)
    x = graph.input("past", TensorType(F32, shape), Port("past", "float32", shape))
    new = graph.input("new", TensorType(F32, (1, 2, 3, 4)), Port("new", "float32", (1, 2, 3, 4)))
    back = graph.add(Permute(order=(0, 2, 1, 3)), graph.add(Permute(order=(0, 2, 1, 3)), x))
    y = graph.add(Concat(axis=2), back, new)
    longer = (1, 2, "n+3", 4)
    graph.output(y, Port("present", "float32", longer))
    graph.output(graph.add(Add(), y, y), Port("twice", "float32", longer))
    return graph


def test_values_that_are_moved_before_the_concat_have_the_range_of_the_cache() -> None:
    graph = cache_graph()
    result = graph.outputs[0].name
    names = [value.name for value in graph.values]
    ranges = {name: Range(0, 0, 0) for name in names} | {result: Range(-3, 2, 2.5), "new": Range(-1, 1, 1)}
    tied = tie_state_ranges(graph, ranges)
    moved = {node.outputs[0].name for node in graph.nodes if isinstance(node.op, Permute)}
    assert len(moved) == 2
    for name in ("past", *moved, result):
        assert tied[name] == ranges[result]
    assert tied["new"] == ranges["new"] and tied[graph.outputs[1].name] == ranges[graph.outputs[1].name]
    assert ranges["past"] == Range(0, 0, 0), "the measured ranges are not changed"


def test_ranges_are_joined() -> None:
    wide, narrow = Range(-3, 2, 2.5), Range(-1, 1, 1)
    assert join_ranges(narrow, wide) is wide and join_ranges(wide, narrow) is wide
    first = Range(-3, 1, 3, Channels((3, 1), (2, 1), (1, 4), (0, 2), (-3, 0), (1, 1)))
    second = Range(-1, 4, 4, Channels((1, 4), (1, 4), (2, 3), (1, 0), (-1, -1), (1, 4)))
    channels = Channels((3, 4), (2, 4), (2, 4), (0.5, 1), (-3, -1), (1, 4))
    assert join_ranges(first, second) == Range(-3, 4, 4, channels)
    assert join_ranges(first, Range(-1, 4, 4)) == Range(-3, 4, 4)
