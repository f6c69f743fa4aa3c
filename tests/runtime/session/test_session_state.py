"""Sessions that keep key-value caches: equality with ONNX Runtime, chunk invariance, state, masks, capacity, errors."""

import itertools
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tpuconvert as tc
from tests.support.native_cases.random_graphs import needs_extension
from tests.support.networks.decoders import (
    EXPLICIT,
    GATHER_ND,
    LOOKUP,
    MICROSOFT,
    STANDARD,
    TWO_NUMBERS,
    WINDOW,
    decoder,
)
from tpuconvert.runtime.native.builder.cache_analysis import find_caches
from tpuconvert.runtime.native.builder.loader import native
from tpuconvert.runtime.native.plans import Plans
from tpuconvert.runtime.session.session import ReplanningWarning
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.types import Array

VOCABULARY = 50

TOLERANCE = 2e-5
"""Of logits up to 20, after two layers whose sums ONNX Runtime rounds to float32 in another order."""


@pytest.fixture(scope="module", params=[pytest.param(MICROSOFT, marks=pytest.mark.slow), STANDARD, EXPLICIT])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def proto(form: str) -> onnx.ModelProto:
    return decoder(form)


@pytest.fixture(scope="module")
def model(proto: onnx.ModelProto) -> tc.Model:
    return tc.convert(proto)


def tokens(seed: int, count: int, batch: int = 1) -> Array:
    return np.random.default_rng(seed).integers(0, VOCABULARY, (batch, count))


def feeds_of(proto: onnx.ModelProto, ids: Array, mask: Array | None = None) -> dict[str, Array]:
    """Feeds of a whole prompt, with empty caches."""
    mask = np.ones(ids.shape, np.int64) if mask is None else mask
    positions = np.maximum(mask.cumsum(1) - 1, 0)
    feeds = {"input_ids": ids, "attention_mask": mask, "position_ids": positions}
    names = [value.name for value in proto.graph.input]
    caches = {name: np.zeros((len(ids), 2, 0, 16), np.float32) for name in names if name.startswith("past")}
    return {name: array for name, array in (feeds | caches).items() if name in names}


def run_onnxruntime(proto: onnx.ModelProto, feeds: dict[str, Array]) -> dict[str, Array]:
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip([port.name for port in session.get_outputs()], session.run(None, feeds), strict=True))


def splits(seed: int, count: int) -> list[tuple[int, int]]:
    """A random division of a prompt into chunks."""
    rng = np.random.default_rng(seed)
    places = [0, *sorted(rng.choice(np.arange(1, count), rng.integers(0, 7), replace=False).tolist()), count]
    return list(itertools.pairwise(places))


@pytest.mark.parametrize("backend", [pytest.param("native", marks=needs_extension), "reference"])
def test_equals_onnxruntime(
    proto: onnx.ModelProto, model: tc.Model, backend: Literal["native", "reference"], tmp_path: Path
) -> None:
    """A prompt and single tokens, from one file."""
    ids = tokens(0, 20)
    wanted = run_onnxruntime(proto, feeds_of(proto, ids))
    model.save(tmp_path / "decoder.tpum")
    with tc.Session(tmp_path / "decoder.tpum", backend=backend) as session:
        parts = [session.run(input_ids=ids[:, start:end])["logits"] for start, end in ((0, 12), (12, 13), (13, 20))]
        np.testing.assert_allclose(np.concatenate(parts, axis=1), wanted["logits"], atol=TOLERANCE)
        assert session.length == 20
        state = session.state
        assert set(state) == {info.name for info in session.states}
        for name, array in state.items():
            present = name.replace("past_key_values", "present")
            np.testing.assert_allclose(array, wanted[present], atol=TOLERANCE)


@needs_extension
def test_logits_do_not_depend_on_the_chunks(model: tc.Model) -> None:
    """50 random divisions of a prompt that exceeds the first capacity, with 1 and 2 threads."""
    ids = tokens(1, 90)
    with tc.Session(model, threads=1) as first, tc.Session(model, threads=2) as second:
        wanted = first.run(ids)["logits"]
        for seed in range(12):
            session = second if seed % 2 else first
            session.reset()
            parts = [session.run(ids[:, start:end])["logits"] for start, end in splits(seed, ids.shape[1])]
            assert np.array_equal(np.concatenate(parts, axis=1), wanted), f"seed {seed}"


@needs_extension
def test_another_batch_than_that_of_the_caches_is_refused(model: tc.Model) -> None:
    with tc.Session(model) as session:
        session.run(np.array([[1, 2]], np.int64))
        with pytest.raises(tc.UsageError, match=r"have 2 sequences, the caches of the session have 1(.|\n)*reset\(\)"):
            session.run(np.array([[1], [2]], np.int64))


def test_logits_with_integer_activations_do_not_depend_on_the_chunks() -> None:
    """50 random divisions of a prompt: rows are quantized one by one."""
    proto = decoder(MICROSOFT, heads=8, hidden=160)
    packed = tc.convert(proto, packed_weights=tc.PackedWeights(weight_type="int4", activation_type="int8"))
    assert "matmul_group_quantized" in {node.op.name for node in packed.graph.nodes}
    ids = tokens(1, 90)
    with tc.Session(packed, threads=1) as first, tc.Session(packed, threads=2) as second:
        wanted = first.run(ids)["logits"]
        for seed in range(12):
            session = second if seed % 2 else first
            session.reset()
            parts = [session.run(ids[:, start:end])["logits"] for start, end in splits(seed, ids.shape[1])]
            assert np.array_equal(np.concatenate(parts, axis=1), wanted), f"seed {seed}"


@needs_extension
def test_logits_do_not_depend_on_the_instruction_set(model: tc.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    ids, found = tokens(2, 11), []
    for isa in native().available_isas():
        monkeypatch.setenv("TPUCONVERT_ISA", isa)
        with tc.Session(model) as session:
            found.append(np.concatenate([session.run(ids[:, :8])["logits"], session.run(ids[:, 8:])["logits"]], axis=1))
    assert all(np.array_equal(found[0], each) for each in found[1:])


@needs_extension
def test_one_plan_for_all_lengths_up_to_the_capacity(model: tc.Model) -> None:
    with tc.Session(model) as session:
        assert session._native is not None and session._native.caches is not None, session._native
        session.run(tokens(0, 5))
        session.run(tokens(1, 1))
        plan = session._native.latest
        for seed in range(50):
            session.run(tokens(seed, 1))
        assert session._native.latest is plan
        session.run(tokens(3, 1000))
        state = session._state
        assert state is not None and session.length == 1056
        assert {array.shape[2] for array in state._arrays.values()} == {2048}
        (block,) = {id(array.base): array.base for array in state._arrays.values()}.values()
        assert block.nbytes == sum(array.nbytes for array in state._arrays.values())


@needs_extension
def test_earlier_caches_are_freed_when_they_grow(model: tc.Model) -> None:
    with tc.Session(model) as session:
        session.run(tokens(0, 5))
        assert session._state is not None
        block = weakref.ref(next(iter(session._state._arrays.values())).base)
        assert block() is not None
        session.run(tokens(0, 100))
        assert block() is None
        session.reset()
        session.run(tokens(0, 5))
        assert session.length == 5


@needs_extension
@pytest.mark.parametrize("mask", [LOOKUP, GATHER_ND, TWO_NUMBERS])
def test_one_plan_for_masks_in_all_forms(mask: str) -> None:
    """Tokens one by one, after a prompt with hidden tokens, have the logits of the reference, with one plan."""
    model = tc.convert(decoder(EXPLICIT, mask=mask))
    ids, given = tokens(0, 12), np.array([[0, 0, 1, 1, 1]])
    steps = [
        {"input_ids": ids[:, :5], "attention_mask": given},
        *({"input_ids": ids[:, k : k + 1]} for k in range(5, 12)),
    ]
    with tc.Session(model) as session, tc.Session(model, backend="reference") as reference:
        assert session.replanning == ""
        plans = []
        for step in steps:
            wanted, found = reference.run(step)["logits"], session.run(step)["logits"]
            np.testing.assert_allclose(found, wanted, atol=TOLERANCE)
            assert isinstance(session._native, Plans)
            plans.append(session._native.latest)
        assert len(session._native._plans) == 2 and len({*plans[1:]}) == 1


@needs_extension
@pytest.mark.parametrize("window", [3, 4096, 100_000])
def test_masks_that_hide_distant_keys_are_not_taken_for_causal_ones(window: int) -> None:
    """The samples of a few tokens do not show a window of 4096 keys."""
    with tc.Session(tc.convert(decoder(EXPLICIT, mask=WINDOW, window=window, layers=1))) as session:
        assert "(index_select) depends on the number of past tokens" in session.replanning


@needs_extension
def test_integer_caches_plan_again_and_packed_weights_do_not() -> None:
    """An INT8 decoder quantizes its caches as a whole; with packed weights and INT8 activations they stay in float."""
    proto = decoder(EXPLICIT, layers=1, hidden=512)
    sample = feeds_of(proto, tokens(0, 8))
    with tc.Session(tc.convert(proto, quantize="int8", calibration=[sample] * 2)) as session:
        assert "(requant_fp32_to_int)" in session.replanning
    packed = tc.PackedWeights(weight_type="int4", activation_type="int8")
    with tc.Session(tc.convert(proto, packed_weights=packed)) as session:
        assert session.replanning == ""


@needs_extension
def test_a_session_with_a_plan_per_length_warns_once_and_names_the_node() -> None:
    assert "slow decoding" not in tc.convert(decoder(EXPLICIT, mask=LOOKUP, layers=1)).summary()
    model = tc.convert(decoder(EXPLICIT, mask=WINDOW, layers=1))
    with tc.Session(model) as session:
        assert "(index_select) depends on the number of past tokens" in session.replanning
        assert f"every token needs a new plan, because {session.replanning}" in model.summary()
        session.run(tokens(0, 3))
        with pytest.warns(ReplanningWarning, match="index_select"):
            session.run(tokens(1, 1))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            session.run(tokens(2, 1))


def test_graph_that_reads_the_length_otherwise_has_a_plan_per_length() -> None:
    """Here, the new keys depend on the number of past tokens. Results equal the results of a run with all tokens."""
    nodes = [
        helper.make_node("ReduceSum", ["past_key", "axes"], ["s"], keepdims=1),
        helper.make_node("Add", ["x", "s"], ["k"]),
        helper.make_node("Concat", ["past_key", "k"], ["present_key"], axis=2),
        helper.make_node("ReduceMean", ["present_key", "axes"], ["y"], keepdims=1),
    ]
    shapes = {"x": (1, 2, "n", 4), "past_key": (1, 2, "p", 4)}
    graph = helper.make_graph(
        nodes,
        "sums",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "present_key")],
        [helper.make_tensor("axes", TensorProto.INT64, [1], [2])],
    )
    model = tc.convert(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10))
    assert isinstance(find_caches(model.graph, model.states), str)
    session = tc.Session(model)
    x = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    past = np.zeros((1, 2, 0, 4), np.float32)
    for _ in range(3):
        past = np.concatenate([past, x + past.sum(2, keepdims=True)], axis=2)
        np.testing.assert_allclose(session.run(x=x)["y"], past.mean(2, keepdims=True), rtol=1e-6)
        np.testing.assert_allclose(session.state["past_key"], past, rtol=1e-6)


def test_state_can_be_saved_and_restored(model: tc.Model) -> None:
    ids = tokens(4, 9)
    session = tc.Session(model)
    session.run(ids[:, :6])
    saved = session.state
    wanted = session.run(ids[:, 6:])["logits"]
    session.reset()
    assert session.length == 0 and session.state == {}
    session.state = saved
    assert session.length == 6
    assert np.array_equal(session.run(ids[:, 6:])["logits"], wanted)


@pytest.mark.parametrize("backend", [pytest.param("native", marks=needs_extension), "reference"])
def test_run_after_a_truncation_continues_after_the_remaining_tokens(
    model: tc.Model, backend: Literal["native", "reference"]
) -> None:
    """Also below a multiple of the capacity, several times, and to no tokens."""
    ids, others = tokens(4, 70), tokens(5, 9)
    with tc.Session(model, backend=backend) as session, tc.Session(model, backend=backend) as fresh:
        session.run(ids)
        for length in (66, 66, 20, 1, 0):
            session.truncate(length)
            assert session.length == length
            assert {array.shape[2] for array in session.state.values()} == ({length} if length else set())
            fresh.reset()
            expected = fresh.run(np.concatenate([ids[:, :length], others], axis=1))["logits"][:, length:]
            logits = session.run(others)["logits"]
            if backend == "native":
                assert np.array_equal(logits, expected)
            np.testing.assert_allclose(logits, expected, atol=TOLERANCE)  # sums of NumPy depend on the number of rows


@needs_extension
def test_truncation_leaves_the_caches_and_the_plan_in_place() -> None:
    session = tc.Session(tc.convert(decoder(STANDARD)))
    session.run(tokens(4, 20))
    session.run(tokens(5, 1))
    assert session._state is not None
    arrays, bound = session._state.current, session._state._bound
    session.truncate(7)
    session.run(tokens(5, 1))
    assert session._state.current is arrays and session._state._bound is bound is not None


def test_truncation_keeps_the_mask_of_the_remaining_tokens() -> None:
    session, fresh = tc.Session(tc.convert(decoder(STANDARD))), tc.Session(tc.convert(decoder(STANDARD)))
    ids, mask = tokens(6, 12), np.ones((1, 12), np.int64)
    mask[0, [0, 1, 9]] = 0
    session.run(input_ids=ids, attention_mask=mask)
    session.truncate(5)
    fresh.run(input_ids=ids[:, :5], attention_mask=mask[:, :5])
    assert np.array_equal(session.run(ids[:, 5:])["logits"], fresh.run(ids[:, 5:])["logits"])


def test_truncation_errors(model: tc.Model) -> None:
    session = tc.Session(model)
    session.run(tokens(4, 3))
    for length in (-1, 4):
        with pytest.raises(UsageError, match=f"the caches have 3 tokens, and cannot be truncated to {length}"):
            session.truncate(length)
    assert session.length == 3


def test_sessions_of_one_file_have_separate_states(model: tc.Model, tmp_path: Path) -> None:
    path = tmp_path / "decoder.tpum"
    model.save(path)
    first, second = tc.Session(path), tc.Session(path)
    first.run(tokens(0, 5))
    assert (first.length, second.length) == (5, 0)


def test_run_with_all_states_is_independent(proto: onnx.ModelProto, model: tc.Model) -> None:
    session = tc.Session(model)
    session.run(tokens(0, 3))
    feeds = feeds_of(proto, tokens(5, 7))
    found = session.run(feeds)
    assert session.length == 3 and found["present.1.key"].shape == (1, 2, 7, 16)
    np.testing.assert_allclose(found["logits"], run_onnxruntime(proto, feeds)["logits"], atol=TOLERANCE)


@pytest.mark.parametrize("form", [STANDARD, EXPLICIT])
@pytest.mark.parametrize("backend", [pytest.param("native", marks=needs_extension), "reference"])
def test_batch_with_padding_on_the_left(form: str, backend: Literal["native", "reference"]) -> None:
    """The positions follow from the mask, which later runs remember."""
    proto = decoder(form)
    model = tc.convert(proto, source_options=tc.SourceOptions(input_shapes={"input_ids": (2, "sequence_length")}))
    ids, mask = tokens(6, 12, batch=2), np.ones((2, 12), np.int64)
    mask[0, :3] = 0
    wanted = run_onnxruntime(proto, feeds_of(proto, ids, mask))["logits"]
    session = tc.Session(model, backend=backend)
    parts = [session.run(input_ids=ids[:, :8], attention_mask=mask[:, :8])["logits"], session.run(ids[:, 8:])["logits"]]
    found = np.concatenate(parts, axis=1)
    np.testing.assert_allclose(found[mask > 0], wanted[mask > 0], atol=TOLERANCE)
    assert session.state["past_key_values.0.key"].shape == (2, 2, 12, 16)


@pytest.mark.parametrize(
    "names",
    [
        ("past.{layer}.{part}", "present.{layer}.{part}"),
        ("past_{part}_{layer}", "present_{part}_{layer}"),
        ("in_{part}_{layer}", "out_{part}_{layer}"),  # recognized by the concat
    ],
)
def test_names_of_the_caches(names: tuple[str, str]) -> None:
    proto = decoder(STANDARD, names=names)
    model = tc.convert(proto, source_options=tc.SourceOptions(input_shapes={"input_ids": (1, "sequence_length")}))
    assert len(model.states) == 4
    session, ids = tc.Session(model), tokens(0, 7)
    wanted = tc.Session(tc.convert(decoder(STANDARD))).run(ids)["logits"]
    found = [session.run(ids[:, :4])["logits"], session.run(ids[:, 4:])["logits"]]
    np.testing.assert_allclose(np.concatenate(found, axis=1), wanted, atol=TOLERANCE)


@pytest.mark.parametrize("state", ["ports", "none"])
def test_caches_stay_inputs_and_outputs(state: str) -> None:
    proto = decoder(STANDARD)
    model = tc.convert(proto, source_options=tc.SourceOptions(state=state))
    session = tc.Session(model)
    assert model.states == () and len(session.inputs) == 7 and session.states == []
    assert session.run(feeds_of(proto, tokens(0, 4)))["present.0.key"].shape == (1, 2, 4, 16)
    with pytest.raises(UsageError, match="keeps no state"):
        session.reset()


def bad_calls() -> Iterator[tuple[dict[str, Any], str]]:
    ids = tokens(0, 3)
    yield {"input_ids": ids, "past_key_values.0.key": np.zeros((1, 2, 0, 16), np.float32)}, "but not 'past_key_values"
    yield {"ids": ids}, r"missing inputs \['input_ids'\] and unknown inputs \['ids'\]"
    yield {"input_ids": ids[:, :0]}, "expected at least one"
    yield {"input_ids": ids, "attention_mask": np.ones((1, 2), np.int64)}, "for the new tokens"
    yield {"input_ids": ids[0]}, r"has shape \[3\], the model takes \[1, sequence_length\]"


@pytest.mark.parametrize(("feeds", "message"), list(bad_calls()))
def test_errors_leave_the_state_unchanged(feeds: dict[str, Any], message: str) -> None:
    session = tc.Session(tc.convert(decoder(MICROSOFT)))
    session.run(tokens(0, 2))
    with pytest.raises(UsageError, match=message):
        session.run(feeds)
    assert session.length == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("past_key_values.0.key"), "the states are"),
        (lambda state: state.update({"past_key_values.0.key": np.zeros((1, 3, 2, 16))}), "the model takes"),
        (lambda state: state.update({"past_key_values.0.key": np.zeros((1, 2, 1, 16))}), "has shape"),
    ],
)
def test_assigned_states_are_checked(change: Any, message: str) -> None:
    session = tc.Session(tc.convert(decoder(STANDARD)))
    session.run(tokens(0, 2))
    state = session.state
    change(state)
    with pytest.raises(UsageError, match=message):
        session.state = state
    assert session.length == 2


def test_reset_is_for_tflite() -> None:
    with pytest.raises(UsageError, match="--state reset belongs to TFLite"):
        tc.convert(decoder(STANDARD), source_options=tc.SourceOptions(state="reset"))
