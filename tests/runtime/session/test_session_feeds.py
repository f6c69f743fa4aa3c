"""Arguments of ``Session.run``: by name, in the order of the inputs, batches; and the text about a session."""

from typing import Any

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.onnx.models import model, one, ramp


@pytest.fixture
def session() -> tc.Session:
    """Two inputs with a batch of 2: a - b."""
    return tc.Session(tc.convert(model([one("Sub", "a", "b")], {"a": ramp(2, 3), "b": ramp(2, 3)}, ["y"])), threads=2)


A, B = np.ones((2, 3), np.float32), np.full((2, 3), 4, np.float32)


@pytest.mark.parametrize("call", [({"a": A, "b": B},), (A, B), ([A, B],), ((A, B),), ({"b": B, "a": A},)])
def test_inputs_by_name_or_in_order(session: tc.Session, call: tuple[Any, ...]) -> None:
    assert session.run(*call)["y"].tolist() == (A - B).tolist()


def test_batches_of_positional_arrays(session: tc.Session) -> None:
    a = np.arange(18, dtype=np.float32).reshape(6, 3)
    assert session.run(a, np.zeros_like(a))["y"].tolist() == a.tolist()
    with pytest.raises(tc.UsageError, match="has 3 samples, the model takes 2 at a time"):
        session.run(a[:3], a[:3])


@pytest.mark.parametrize(
    ("call", "found"),
    [
        ((None, {"a": A, "b": B}), "an argument of run is NoneType"),
        ((["y"], {"a": A, "b": B}), "an argument of run is names of outputs"),
        ((A, {"b": B}), "an argument of run is dict"),
        (("y",), "names of outputs"),
        ((A,), "1 array for the inputs a, b"),
        (([A, B, B],), "3 arrays for the inputs a, b"),
    ],
)
def test_other_calls_are_refused_with_the_convention(session: tc.Session, call: tuple[Any, ...], found: str) -> None:
    with pytest.raises(tc.UsageError, match=found) as caught:
        session.run(*call)
    assert "session.run({'a': array, 'b': array}) returns all outputs by name" in caught.value.hint


def test_text_names_model_backend_threads_and_tensors(session: tc.Session) -> None:
    backend = "native, 2 threads" if session.backend == "native" else "reference"
    tensors = "inputs a float32[2, 3], b float32[2, 3]; outputs y float32[2, 3]"
    assert repr(session).endswith(f"for BM1686, {backend}; {tensors}>")
    session.close()
    assert ", closed;" in repr(session)
