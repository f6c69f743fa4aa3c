"""Integer pooling in every form, scatter with computed indices, and pooling over regions of interest."""

import numpy as np

from tests.support.native_cases.draft import Draft, kind
from tests.support.native_cases.elementwise import image
from tests.support.native_cases.general import half
from tests.support.native_cases.rescaling import some_shape
from tpuconvert.schema.ops.host.regions import RegionMode, RoiAlign, RoiMaxPool
from tpuconvert.schema.ops.host.scatter import HostScatterElements, HostScatterNd, Reduction
from tpuconvert.schema.ops.pool3d_int import Pool3dInt
from tpuconvert.schema.ops.pool_int import OutCeilMode, PoolInt, PoolQuantMode
from tpuconvert.schema.types import F16, F32, I8, I16, I32, U8, U16, U32


@kind(500)
def pool_any(draft: Draft) -> None:
    """pool_int and pool3d_int: averages and maxima with their positions."""
    is_volume = draft.chance(0.5)
    names = "thw" if is_volume else "hw"
    parameters: dict[str, object] = {}
    extents = []
    for name in names:
        extent, kernel = draft.small(14), draft.number(1, 4)
        stride = draft.number(1, 3)
        before, after = (draft.number(0, kernel - 1) for _ in range(2))
        extent = max(extent, kernel - before - after, 1)
        extents.append(extent)
        parameters |= {f"kernel_{name}": kernel, f"stride_{name}": stride}
        sides = {"h": "tb", "w": "lr"}[name] if not is_volume else "01"
        parameters |= {f"pad_{name}_{sides[0]}": before, f"pad_{name}_{sides[1]}": after}
    is_average = draft.chance(0.5)
    op = (Pool3dInt if is_volume else PoolInt)(
        **parameters,
        is_avg_pooling=is_average,
        out_ceil_mode=OutCeilMode.floor,
        quant_mode=draft.pick(*PoolQuantMode),
        scale=draft.number(-(2**20), 2**20),
        rshift=draft.number(0, 30),
    )
    shape = (draft.pick(1, 1, 2), draft.small(20), *extents)
    x = image(draft, draft.pick(I8, U8, I16), shape)
    results = draft.add_all(op, x)
    if draft.chance(0.2) and not is_average:
        draft.graph.output(results[0])  # the positions are not used


@kind(300)
def scatter(draft: Draft) -> None:
    shape = some_shape(draft)
    dtype = draft.pick(F32, F32, F16, I32, U32, I16, U16, I8, U8)
    reduction = draft.pick(*Reduction)
    if draft.chance(0.5):
        depth = draft.number(1, len(shape))
        lead = tuple(draft.small(6) for _ in range(draft.number(1, 2)))
        columns = [draft.rng.integers(-extent, extent, lead) for extent in shape[:depth]]
        indices = np.stack(columns, axis=-1).astype(np.int32)
        op, extents = HostScatterNd(reduction), lead + shape[depth:]
    else:
        axis = draft.number(0, len(shape) - 1)
        extents = tuple(draft.small(6) if k == axis else draft.number(1, size) for k, size in enumerate(shape))
        indices = draft.rng.integers(-shape[axis], shape[axis], extents).astype(np.int32)
        op = HostScatterElements(reduction, axis)
    made = [half(draft, size) if dtype is F16 else draft.data(dtype, size) for size in (shape, extents)]
    data, updates = (draft.input(dtype, array.shape, array) for array in made)
    index = draft.constant(indices) if draft.chance(0.3) else draft.input(I32, indices.shape, indices)
    draft.add(op, data, index, updates)


@kind(200)
def regions(draft: Draft) -> None:
    """roi_align and roi_max_pool, with regions outside of the image and empty ones."""
    shape = (draft.pick(1, 2, 3), draft.small(20), draft.small(20), draft.small(20))
    count = draft.small(5)
    scale = draft.pick(1.0, 0.25, 0.5)
    reach = 1.3 * max(shape[2:]) / scale
    corners = draft.rng.uniform(-0.2 * reach, reach, (count, 4)).astype(np.float32)
    if draft.chance(0.7):
        corners[:, 2:] = corners[:, :2] + np.abs(corners[:, 2:] - corners[:, :2])
    images = draft.rng.integers(0, shape[0], count).astype(np.int32)
    x = draft.input(F32, shape)
    cells = {"output_height": draft.small(7), "output_width": draft.small(7), "spatial_scale": scale}
    if draft.chance(0.5):
        rois = np.concatenate([images[:, None].astype(np.float32), corners], axis=1)
        draft.add(RoiMaxPool(**cells), x, draft.input(F32, rois.shape, rois))
        return
    further = {"mode": draft.pick(*RegionMode), "half_pixel": draft.chance(0.5), "sampling_ratio": draft.pick(0, 0, 2)}
    op = RoiAlign(**cells, **further)
    draft.add(op, x, draft.input(F32, corners.shape, corners), draft.input(I32, images.shape, images))
