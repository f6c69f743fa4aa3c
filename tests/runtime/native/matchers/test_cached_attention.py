"""Attention over caches: equal bytes on all instruction sets, for head sizes with and without a remainder of 16."""

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.networks.decoders import EXPLICIT, decoder
from tests.support.sampled import sampled
from tpuconvert.runtime.native.builder.loader import extension, native
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.types import Array

pytestmark = pytest.mark.skipif(extension() is None, reason="the native engine was not built")

TOKENS = np.random.default_rng(3).integers(0, 50, 37)
"""The last runs have 35 to 37 keys: whole registers of keys and a remainder."""


def logits(model: tc.Model, first: int) -> Array:
    """Logits of all tokens: some at once, then one by one."""
    with Session(model, threads=1) as session:
        parts = [session.run({"input_ids": TOKENS[None, :first]})["logits"]]
        parts += [session.run({"input_ids": token.reshape(1, 1)})["logits"] for token in TOKENS[first:]]
        assert "cached_attention_float32" in session._native.latest.kernels  # type: ignore[union-attr]
    return np.concatenate(parts, axis=1)


@pytest.mark.parametrize(
    ("size", "heads", "kv_heads"),
    sampled([*((size, 4, 2) for size in (6, 16, 20, 48, 64, 70)), (64, 3, 1), (20, 3, 3)], every=2),
)
def test_head_sizes(size: int, heads: int, kv_heads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """37 queries of 1 to 3 heads with the same keys leave blocks of 1 to 4 queries."""
    model = tc.convert(decoder(EXPLICIT, layers=1, heads=heads, kv_heads=kv_heads, size=size, hidden=16, positions=64))
    with Session(model, backend="reference") as session:
        expected = session.run({"input_ids": TOKENS[None]})["logits"]
    found = []
    for isa in native().available_isas():
        monkeypatch.setenv("TPUCONVERT_ISA", isa)
        found += [logits(model, 1), logits(model, len(TOKENS))]
    assert {array.tobytes() for array in found} == {found[0].tobytes()}
    # The reference rounds every attention once, as the kernel does; matmuls accumulate in another order.
    np.testing.assert_allclose(found[0], expected, rtol=0, atol=1e-5 * float(np.ptp(expected)))


def test_nan_in_a_key_reaches_the_queries_that_attend_to_it() -> None:
    model = tc.convert(decoder(EXPLICIT, layers=1, heads=4, kv_heads=2, size=20, hidden=16, positions=64))
    with Session(model, threads=1) as session:
        session.run({"input_ids": TOKENS[None, :20]})
        state = session.state
        state["past_key_values.0.key"][0, 0, 3] = np.nan
        session.state = state
        assert np.isnan(session.run({"input_ids": TOKENS[None, 20:21]})["logits"]).all()
