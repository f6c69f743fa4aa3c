"""Construction of operators: parameter names and their aliases, immutability, equality."""

import dataclasses
import pickle

import pytest

from tpuconvert.schema.op import Op
from tpuconvert.schema.op_attributes import forms
from tpuconvert.schema.ops.requant_int32 import RequantInt32, RequantMode


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
