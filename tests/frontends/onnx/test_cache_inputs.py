"""Extents of the inputs of decoders, as exporters with separate names for equal extents write them."""

import pytest

import tpuconvert as tc
from tests.support.networks.decoders import EXPLICIT, GATHER_ND, decoder
from tpuconvert.frontends.input_patterns import expand_patterns
from tpuconvert.frontends.onnx.cache_inputs import assumed_extents
from tpuconvert.schema.errors import UsageError

SHAPES = {
    "input_ids": ("s26", "s70"),
    "attention_mask": ("s43", "s53"),
    "past.0.key": ("s26", 2, "s54", 16),
    "past.0.value": ("s9", 2, "s84", 16),
}
OUTPUTS = ("present.0.key", "present.0.value")


def test_extents_of_caches_and_of_the_mask_are_inferred() -> None:
    values, notes = assumed_extents(SHAPES, OUTPUTS, {})
    assert values == {"s9": "s26", "s43": "s26", "s84": "s54", "s26": 1, "s53": "s54 + s70"}
    assert notes == [
        "the extents 's9', 's43', 's26' are assumed to be equal",
        "the extents 's84', 's54' are assumed to be equal",
        "the extent 's26' is assumed to be 1; --input-shapes input_ids=2,sequence sets another batch",
        "the extent 's53' of attention_mask is assumed to be s54 + s70",
    ]


def test_extents_of_the_caller_represent_the_others() -> None:
    values, _ = assumed_extents(SHAPES, OUTPUTS, {"s43": 2, "s84": "past"})
    assert values == {"s9": "s43", "s26": "s43", "s54": "s84", "s53": "s84 + s70"}


def test_the_width_of_a_mask_without_known_caches_is_free() -> None:
    shapes = {"input_ids": ("batch", "new"), "attention_mask": ("batch", "total"), "memory": ("batch", 2, "old", 16)}
    assert assumed_extents(shapes, ("memory_after",), {}) == ({}, [])


def test_a_mask_beside_ids_only_has_their_extents() -> None:
    values, _ = assumed_extents({"input_ids": ("s1", "s2"), "attention_mask": ("s3", "s4")}, ("logits",), {})
    assert values == {"s3": "s1", "s4": "s2"}


def test_a_decoder_with_a_name_per_cache_is_converted() -> None:
    """The dynamo exporter with ``Dim.DYNAMIC`` names each extent, and looks up the mask with GatherND."""
    proto = decoder(EXPLICIT, mask=GATHER_ND, lengths=("s{}", "sequence_length + s{}"))
    model = tc.convert(proto)
    assert len(model.states) == 4
    assert {port.shape[2] for port in model.graph.input_ports if port.name.startswith("past")} == {"s0"}
    assert model.graph.output_ports[1].shape == (1, 2, "s0+sequence_length", 16)
    assert (
        tc.generate(model, tokens=[1, 2, 3], max_new_tokens=3).new_tokens
        == tc.generate(tc.convert(decoder(EXPLICIT)), tokens=[1, 2, 3], max_new_tokens=3).new_tokens
    )


def test_a_pattern_sets_the_shapes_of_all_caches() -> None:
    """A name keeps the number of the file, where it has one."""
    options = tc.SourceOptions(input_shapes={"past_key_values.*": (1, "K", "past", 16), "input_ids": (1, "new")})
    model = tc.convert(decoder(EXPLICIT), source_options=options)
    shapes = {port.shape for port in model.graph.input_ports if port.name.startswith("past")}
    assert shapes == {(1, 2, "past", 16)} and model.states
    assert tc.Session(model).run(input_ids=[[1, 2, 3]])["logits"].shape == (1, 3, 50)


def test_names_have_precedence_over_patterns() -> None:
    names = ["past.0", "past.1", "ids"]
    assert expand_patterns({"past.*": (1,), "past.1": (2,), "*": (3,)}, names, "m") == {
        "past.0": (1,), "past.1": (2,), "ids": (3,)
    }  # fmt: skip
    with pytest.raises(UsageError, match=r"no input has a name of the pattern 'future\.\*'") as caught:
        expand_patterns({"future.*": (1,)}, names, "m")
    assert "past.0, past.1, ids" in str(caught.value)
