"""Fields that are kept as arrays behave like tuples."""

import copy
import dataclasses
import pickle

import numpy as np
import pytest

from tpuconvert.schema.array_fields import has_arrays, make_with_arrays, numbers_of, range_of
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.quantization.requant_int32 import RequantInt32, RequantMode
from tpuconvert.schema.types import I8, I32, QuantParams, TensorType

MULTIPLIERS = tuple(range(1 << 30, (1 << 30) + 100))
SHIFTS = tuple(-40 + index % 7 for index in range(100))
SCALES = tuple(0.5 + index / 64 for index in range(100))


def requant() -> RequantInt32:
    arrays = {"multiplier_vec": np.array(MULTIPLIERS), "shift_vec": np.array(SHIFTS)}
    plain = {"is_mul_shift_pc": True, "mode": RequantMode.MULTIPLIER_SHIFT}
    return make_with_arrays(RequantInt32, plain, arrays)


def same_requant() -> RequantInt32:
    mode = RequantMode.MULTIPLIER_SHIFT
    return RequantInt32(is_mul_shift_pc=True, mode=mode, multiplier_vec=MULTIPLIERS, shift_vec=SHIFTS)


def quant() -> QuantParams:
    arrays = {"scale": np.array(SCALES), "zero_point": np.zeros(100, np.int64)}
    return make_with_arrays(QuantParams, {"dtype": I8, "axis": 1}, arrays)


def test_creates_tuple_at_first_access() -> None:
    op = requant()
    assert isinstance(numbers_of(op, "shift_vec"), np.ndarray) and "shift_vec" not in vars(op)
    assert op.shift_vec == SHIFTS and type(op.shift_vec) is tuple and type(op.shift_vec[0]) is int
    assert op.shift_vec is op.shift_vec
    assert quant().scale == SCALES and type(quant().scale[0]) is float and quant().zero_point == (0,) * 100
    assert same_requant().offset_vec == () == requant().offset_vec


@pytest.mark.parametrize(
    ("made", "plain"), [(requant, same_requant), (quant, lambda: QuantParams(SCALES, (0,) * 100, I8, 1))]
)
def test_equals_object_created_with_tuples(made, plain) -> None:  # type: ignore[no-untyped-def]  # functions of any class
    assert made() == plain() and plain() == made() and hash(made()) == hash(plain())
    assert repr(made()) == repr(plain()) and str(made()) == str(plain())
    assert dataclasses.asdict(made()) == dataclasses.asdict(plain())
    assert dataclasses.replace(made()) == plain() and not has_arrays(dataclasses.replace(made()))
    for copied in (copy.copy(made()), copy.deepcopy(made()), pickle.loads(pickle.dumps(made()))):
        assert copied == plain()
    assert dataclasses.fields(made()) == dataclasses.fields(plain())


def test_does_not_affect_objects_created_with_tuples() -> None:
    requant()
    assert RequantInt32(mode=RequantMode.TFLITE).shift_vec == () and RequantInt32.shift_vec == ()
    with pytest.raises(AttributeError):
        _ = QuantParams.scale


def test_checks_values_of_arrays() -> None:
    with pytest.raises(ValueError, match="positive"):
        make_with_arrays(
            QuantParams,
            {"dtype": I8, "axis": 0},
            {"scale": np.array([1.0, np.nan]), "zero_point": np.zeros(2, np.int64)},
        )
    with pytest.raises(ValueError, match="2 scales with 3 zero points"):
        make_with_arrays(
            QuantParams, {"dtype": I8, "axis": 0}, {"scale": np.ones(2), "zero_point": np.zeros(3, np.int64)}
        )
    zero_points = np.array([0, 1 << 31])
    with pytest.raises(ValueError, match="range of INT32"):
        make_with_arrays(QuantParams, {"dtype": I8, "axis": 0}, {"scale": np.ones(2), "zero_point": zero_points})
    with pytest.raises(ValueError, match="found 2147483648"):
        make_with_arrays(RequantInt32, {"mode": RequantMode.TFLITE}, {"multiplier_vec": np.array([1, 1 << 31])})
    with pytest.raises(ValueError, match="found -65"):
        make_with_arrays(RequantInt32, {"mode": RequantMode.TFLITE_LSHIFT}, {"shift_vec": np.array([1, -65])})
    assert range_of(requant(), "shift_vec") == (-40, -34) and range_of(requant(), "offset_vec") == (0, 0)


def test_types_are_inferred_without_the_tuples() -> None:
    graph, op = Graph(), requant()
    graph.add(op, graph.input("x", TensorType(I32, (1, 100, 2, 2))))
    assert not {"multiplier_vec", "shift_vec"} & set(vars(op))
