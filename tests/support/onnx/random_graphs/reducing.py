"""Steps of reductions, selections and cumulative sums."""

from __future__ import annotations

import numpy as np

from tests.support.onnx.random_graphs.drawing import FLOATS, I32, I64, NUMBERS, Declined, Drawing, Value
from tests.support.onnx.random_graphs.movement import axes_input
from tests.support.onnx.random_graphs.registry import step

REDUCTIONS = ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp")


@step(4)
def reduce_(d: Drawing) -> object:
    x = d.value(FLOATS if d.chance(0.85) else (I32, I64))
    kind = d.choose(["Sum", "Mean", "Max", "Min"]) if d.chance(0.5) else d.choose(REDUCTIONS)
    if kind == "LogSum":
        (x,) = d.emit("Abs", [x])
        if x.dtype.kind == "f":
            (x,) = d.emit("Add", [x, d.constant(np.asarray(0.25, x.dtype))])
    keep = {"keepdims": d.integer(0, 1)} if d.chance(0.8) else {}
    if kind == "Mean" and any(0 in shape for shape in x.shapes):
        raise Declined  # the standard leaves the mean of no elements open
    results = _reduced(d, f"Reduce{kind}", x, 13 if kind == "Sum" else 18, keep)
    if kind == "Prod" and x.dtype.kind == "f" and not all(np.isfinite(array).all() for array in d.values[-1].arrays):
        d.drop_last()
        raise Declined  # an intermediate product of ONNX Runtime overflows
    return results


def _reduced(d: Drawing, op: str, x: Value, since: int, keep: dict[str, int]) -> object:
    if d.chance(0.2):
        if d.opset >= since and d.chance(0.5):
            inputs = [x, d.numbers([])] if d.chance(0.5) else [x]
            return d.emit(op, inputs, noop_with_empty_axes=d.integer(0, 1), **keep)
        return d.emit(op, [x], **keep)
    axes = d.subset(range(x.rank), 1)
    if d.opset >= 11 and d.chance(0.4):
        axes = [k - x.rank for k in axes]
    return axes_input(d, op, x, axes, since, **keep)


@step(1)
def arg_extreme(d: Drawing) -> object:
    x = d.value((*FLOATS, I32, np.dtype("uint8"), np.dtype("int8")))
    if x.rank == 0:
        raise Declined
    more = {"select_last_index": d.integer(0, 1)} if d.opset >= 12 and d.chance(0.5) else {}
    axis = d.axis(x.rank) if d.opset >= 11 else d.integer(0, x.rank - 1)
    return d.emit(d.choose(["ArgMax", "ArgMin"]), [x], axis=axis, keepdims=d.integer(0, 1), **more)


@step(1)
def top_k(d: Drawing) -> object:
    x = d.value(FLOATS if d.opset < 11 else (*FLOATS, I32, I64))
    axis = d.axis(x.rank) if d.opset >= 11 else d.integer(0, max(x.rank - 1, 0))
    k = d.integer(1, min(s[axis] for s in x.shapes))
    if d.opset < 10:
        return d.emit("TopK", [x], 2, axis=axis, k=k)
    more = {} if d.opset < 11 else {"largest": d.integer(0, 1), "sorted": 1}
    return d.emit("TopK", [x, d.numbers([k])], 2, axis=axis, **more)


@step(1)
def cumulative_sum(d: Drawing) -> object:
    if d.opset < 11:
        raise Declined
    x = d.value((*FLOATS, I32, I64))
    axis = d.constant(np.asarray(d.axis(x.rank), d.choose([I32, I64])))
    return d.emit("CumSum", [x, axis], exclusive=d.integer(0, 1), reverse=d.integer(0, 1))


@step(2)
def softmax(d: Drawing) -> object:
    x = d.value()
    axis = d.axis(x.rank) if d.opset >= 11 else d.integer(0, x.rank - 1)
    return d.emit(
        d.choose(["Softmax", "Softmax", "LogSoftmax", "Hardmax"]), [x], **({} if d.chance(0.2) else {"axis": axis})
    )


@step(0.5)
def einsum(d: Drawing) -> object:
    if d.opset < 12:
        raise Declined
    x = d.of_rank(2, 3)
    equation = d.choose(
        {
            2: ["ij,jk->ik", "ij->ji", "ij,ij->i", "ij->", "ij,kj->ik", "ii->i"],
            3: ["bij,bjk->bik", "bij->bji", "bij,bkj->bik", "bij->b", "...ij->...ji"],
        }[x.rank]
    )
    terms = equation.split("->")[0].split(",")
    if len(terms) == 1:
        return d.emit("Einsum", [x], equation=equation)
    shapes = []
    for shape in x.shapes:
        extents = dict(zip(terms[0], shape, strict=True))
        shapes.append(tuple(extents.get(letter, 3) for letter in terms[1]))
    return d.emit("Einsum", [x, d.fresh(x.dtype, shapes)], equation=equation)


assert NUMBERS
