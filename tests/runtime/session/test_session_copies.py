"""Models and graphs can be copied and pickled; a session cannot, and says so."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.onnx.models import model, one

COPIES: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda item: pickle.loads(pickle.dumps(item)),
}


@pytest.fixture(scope="module")
def converted() -> tc.Model:
    return tc.convert(model([one("Relu", "x")], {"x": np.zeros((1, 4), np.float32)}, ["y"]))


@pytest.mark.parametrize("how", COPIES)
def test_session(how: str, converted: tc.Model) -> None:
    with tc.Session(converted) as session, pytest.raises(tc.UsageError, match="cannot be copied or pickled"):
        COPIES[how](session)


@pytest.mark.parametrize("how", COPIES)
def test_model(how: str, converted: tc.Model) -> None:
    x = np.array([[-1, 2, -3, 4]], np.float32)
    for found in (COPIES[how](converted), COPIES[how](converted.graph)):
        graph = getattr(found, "graph", found)
        assert [node.op for node in graph.nodes] == [node.op for node in converted.graph.nodes]
    with tc.Session(COPIES[how](converted)) as session:
        np.testing.assert_array_equal(session.run(x=x)["y"], np.maximum(x, 0))
