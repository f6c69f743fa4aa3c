"""Names that keep the float node of each integer node in float."""

import shlex

import pytest

import tpuconvert as tc
from tests.support.networks.small_models import examples
from tpuconvert.conversion.options.options import group_options
from tpuconvert.model.description import describe_model
from tpuconvert.model.float_names import keep_float_options
from tpuconvert.model.model import Model

GIVEN = {"calibration": examples() / "calibration.npz", "preprocess": "color=GRAY,scale=0.0625", "quantize": "int8"}


@pytest.fixture(scope="module")
def model() -> Model:
    return tc.convert(examples() / "digits.onnx", **group_options(**GIVEN))


def names_of(model: Model) -> dict[str, list[str]]:
    """Return the operators of nodes that can be kept in float, by the name of the float node."""
    found: dict[str, list[str]] = {}
    for layer in describe_model(model.content)["layers"]:
        if layer["keep_float"] is not None:
            found.setdefault(layer["keep_float"], []).append(layer["op"])
    return found


def test_nodes_of_one_float_node_have_its_name(model: Model) -> None:
    found = names_of(model)
    assert any(ops == ["conv_v2", "requant_int32"] for ops in found.values())


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_the_name_keeps_the_node_in_float(every: int, model: Model) -> None:
    for name, ops in list(names_of(model).items())[::every]:
        changed = tc.convert(examples() / "digits.onnx", **group_options(keep_float=[name], **GIVEN))
        assert name not in names_of(changed), (name, ops)


def test_float_models_have_no_names() -> None:
    assert names_of(tc.convert(examples() / "digits.onnx")) == {}


def test_names_are_quoted_for_a_shell() -> None:
    assert shlex.split(keep_float_options(["a b", "it's", "$(x)"])) == [
        *("--keep-float", "a b"),
        *("--keep-float", "it's"),
        *("--keep-float", "$(x)"),
    ]
