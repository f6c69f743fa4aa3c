"""Several convolutions, sums, pools and permutes in one graph: kernels that read the results of other kernels."""

from tests.support.native_cases.draft import Draft, kind
from tests.support.native_cases.elementwise import last_rescale, scales_of, widen
from tests.support.native_cases.linear import exact_convolution_of, zero_point
from tests.support.native_cases.movement import channels, extract, moved, pad, permute, resize, split
from tests.support.native_cases.rescaling import add_limit, follow, requantize, table
from tpuconvert.schema.graph.graph import Value
from tpuconvert.schema.ops.arithmetic import Add, Max, Min
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.pool import Pool, PoolType
from tpuconvert.schema.types import I8, U8

BYTES = (I8, U8)


def convolution(draft: Draft, x: Value) -> Value:
    """Add a convolution of a computed value, requantized to 8 bits."""
    style = draft.pick("dense", "dense", "depthwise")
    sums = exact_convolution_of(draft, x, style, draft.small(40))
    y = requantize(draft, sums, out=draft.pick(*BYTES))
    return follow(draft, y, 1) if draft.chance(0.3) else y


def pooling(draft: Draft, x: Value) -> Value:
    kernels = [draft.small(min(extent, 3)) for extent in x.type.static_shape[2:]]
    op = Pool(
        stride_h=draft.pick(1, 2),
        stride_w=draft.pick(1, 2),
        kernel_h=kernels[0],
        kernel_w=kernels[1],
        pooling_type=draft.pick(PoolType.MAX, PoolType.AVE),
    )
    return draft.add(op, x)


def residual(draft: Draft, x: Value, y: Value) -> Value:
    """Add the sum of two values of one shape."""
    terms = []
    for value in (x, y):
        zero, whole = zero_point(draft, value.dtype), draft.number(1, 2**15 - 1)
        terms.append(widen(draft, value, whole << 16, 15, -zero * whole))
    out = draft.pick(*BYTES)
    total = draft.add(Add(), *terms)
    return last_rescale(draft, total, [scales_of(draft, 1)[0] / 2**15], zero_point(draft, out), out, twice=False)


def step(draft: Draft, values: list[Value]) -> Value:
    """Add an operator on values of the graph."""
    x = draft.pick(*values)
    same = [value for value in values if value.type == x.type and value is not x]
    alike = [v for v in values if v.dtype is x.dtype and v.shape[2:] == x.shape[2:] and v.shape[0] == x.shape[0]]
    choice = draft.number(0, 11)
    if choice < 4:
        return convolution(draft, x)
    if choice == 4:
        return pooling(draft, x)
    if choice == 5 and same:
        return residual(draft, x, draft.pick(*same))
    if choice == 6 and same:
        return draft.add(draft.pick(Max(), Min()), x, draft.pick(*same))
    if choice == 7:
        return draft.add(Concat(axis=1), *(draft.pick(*alike) for _ in range(draft.number(2, 3))))
    if choice == 8:
        return table(draft, x)
    if choice == 9:
        return add_limit(draft, x)
    move = draft.pick(permute, extract, pad, split, resize, channels)
    return move(draft, x)


@kind(1200)
def chains(draft: Draft) -> None:
    """Random graphs of rank-4 bytes; unused values become outputs, and sometimes others too."""
    shape = (draft.pick(1, 1, 2), draft.small(24), draft.small(10), draft.small(10))
    values = [draft.input(draft.pick(*BYTES), shape) for _ in range(draft.number(1, 2))]
    for _ in range(draft.number(2, 9)):
        y = step(draft, values)
        while y.dtype.bits != 8:
            y = requantize(draft, y, out=draft.pick(*BYTES))
        size = 1
        for extent in y.type.static_shape:
            size *= extent
        if y.rank == 4 and size < 8000:
            values.append(y)
    if draft.chance(0.3) and not draft.graph.nodes:
        moved(draft, values[0], 1)
    made = [value for value in draft.graph.values if value.producer is not None]
    if not made:
        made = [table(draft, values[0])]
    for value in made:
        if not value.uses or draft.chance(0.03):
            draft.graph.output(value)
