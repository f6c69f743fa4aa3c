"""Sorting and selection along an axis: arg, topk, sort and argsort, with equal elements and NaN."""

import numpy as np

from tests.support.native_cases.draft import Draft, kind
from tests.support.native_cases.rescaling import some_shape
from tpuconvert.schema.ops.ordering import Arg, ArgMethod, Argsort, Sort, Topk
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.types import F32, I8, I32, U8


@kind(400)
def ordering(draft: Draft) -> None:
    shape = some_shape(draft)
    dtype = F32
    if draft.chance(0.3):
        dtype = draft.pick(I8, U8)
    array = draft.data(dtype, shape)
    if dtype is F32 and draft.chance(0.6):
        array = draft.rng.choice(np.array([np.nan, -np.nan, np.inf, -np.inf, 0, -0.0, 1, 2], np.float32), shape)
    x = draft.input(dtype, shape, array)
    axis = draft.number(-len(shape), len(shape) - 1)
    if draft.chance(0.3):
        x = draft.add(Permute(tuple(int(place) for place in draft.rng.permutation(len(shape)))), x)
    descending = draft.chance(0.5)
    form = "arg" if dtype is not F32 else draft.pick("arg", "topk", "sort", "argsort")
    if form == "arg":
        draft.add(Arg(axis, draft.pick(*ArgMethod), out_dtype=draft.pick(I32, F32) if dtype is F32 else I32), x)
    elif form == "topk":
        draft.add_all(Topk(draft.number(1, x.type.static_shape[axis]), axis, descending), x)
    elif form == "sort":
        draft.add_all(Sort(axis, descending=descending), x)
    else:
        draft.add(Argsort(axis, descending=descending, out_dtype=draft.pick(I32, F32)), x)
