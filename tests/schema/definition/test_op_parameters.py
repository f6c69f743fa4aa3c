"""Construction of operators: parameter names and their aliases, immutability, equality."""

import dataclasses
import math
import pickle
from typing import Any

import numpy as np
import pytest

from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.file.op_attributes import encode, forms
from tpuconvert.schema.ops.quantization.requant_int32 import RequantInt32, RequantMode


def test_accepts_parameter_aliases() -> None:
    by_alias = RequantInt32(mode=RequantMode.TFLITE, scale_val=-3, scale_vec=(-1, -2))  # type: ignore[call-arg]
    assert by_alias == RequantInt32(mode=RequantMode.TFLITE, shift_val=-3, shift_vec=(-1, -2))


def test_rejects_parameter_given_under_two_names() -> None:
    with pytest.raises(TypeError, match="scale_val is another name of shift_val, and both are given"):
        RequantInt32(mode=RequantMode.TFLITE, scale_val=-3, shift_val=-3)  # type: ignore[call-arg]


def test_rejects_unknown_parameter() -> None:
    with pytest.raises(TypeError, match="shift_value"):
        RequantInt32(mode=RequantMode.TFLITE, shift_value=-3)  # type: ignore[call-arg]


def test_operators_are_immutable_values() -> None:
    op = RequantInt32(mode=RequantMode.TFLITE, shift_val=-3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        op.shift_val = 0  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(op)) == op and hash(pickle.loads(pickle.dumps(op))) == hash(op)


def test_replace_checks_parameters_again() -> None:
    op = RequantInt32(mode=RequantMode.TFLITE, shift_val=-3)
    with pytest.raises(ValueError, match="found 1"):
        dataclasses.replace(op, shift_val=1)


STRANGE = ["print('x')", "[int][0]", "dict[str, int]", "int if True else str", "lambda: 0", "nothing", "("]


@pytest.mark.parametrize("annotation", STRANGE)
def test_annotations_are_not_evaluated(annotation: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An annotation is text of a plugin, and no code in it is run."""

    @dataclasses.dataclass(frozen=True)
    class Strange(Op):
        size: int

    Strange.__annotations__["size"] = annotation
    with pytest.raises(ValueError, match=r"\.size: a field of type .* cannot be stored"):
        forms(Strange)
    assert capsys.readouterr().out == ""


@dataclasses.dataclass(frozen=True)
class Tuples(Op):
    """An operator with long parameters."""

    integers: tuple[int, ...] = ()
    reals: tuple[float, ...] = ()
    flags: tuple[bool, ...] = ()
    names: tuple[str, ...] = ()


def stored(**parameters: Any) -> Any:
    """Return the stored form of the only parameter that is given."""
    (name,) = parameters
    (found,) = (item for item in encode(Tuples(**parameters)) if item.name == name)
    return {"integers": found.integers, "reals": found.reals, "flags": found.integers, "names": found.strings}[name]


def test_tuples_are_stored_as_plain_numbers() -> None:
    assert stored(integers=(1, -2)) == stored(integers=(np.int32(1), np.int8(-2))) == (1, -2)
    assert stored(reals=(0.5, 2.0)) == stored(reals=(np.float32(0.5), 2)) == (0.5, 2.0)
    assert {type(value) for value in stored(reals=(np.float32(0.5), 2))} == {float}
    assert stored(flags=(True, np.bool_(False))) == (1, 0)
    assert stored(names=("a", "b")) == ("a", "b")
    assert stored(integers=()) == ()


def test_every_nan_of_a_tuple_is_stored_as_one() -> None:
    payload = float(np.array(0x7FF8_0000_0000_0123, np.uint64).view(np.float64))
    found = stored(reals=(payload, 1.0))
    assert math.isnan(found[0]) and np.float64(found[0]).view(np.uint64) == np.float64(math.nan).view(np.uint64)


@pytest.mark.parametrize("values", [(1 << 63, 0), (0, -(1 << 63) - 1), (1, True), (1, 2.0), (1, "2")])
def test_rejects_values_that_are_no_integers_of_64_bits(values: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match="integers"):
        encode(Tuples(integers=values))
