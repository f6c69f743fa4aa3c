"""Windows of operands: the windows of the native engine equal the windows of NumPy."""

import numpy as np
import pytest

from tpuconvert.optimizer.quantize.weights.operand_windows import windows_of
from tpuconvert.optimizer.quantize.weights.weight_rounding import patches
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.convolution.conv3d import Conv3d


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.float32, np.float64])
@pytest.mark.parametrize("most", [1, 7, 1000])
@pytest.mark.parametrize(
    "op",
    [
        Conv(pad_h_t=1, pad_h_b=1, pad_w_l=1, pad_w_r=1),
        Conv(groups=2, stride_h=2, stride_w=3, pad_h_t=1),
        Conv(groups=4, dh=2, dw=2, pad_w_r=5),
    ],
    ids=str,
)
def test_windows_of_images_of_several_extents(op, most, dtype):
    rng = np.random.default_rng(most)
    images = [rng.integers(-100, 100, (4, *extents)).astype(dtype) for extents in ((7, 8), (7, 8), (9, 5))]
    wanted = np.concatenate([patches(image[None], op, (3, 3), most) for image in images], axis=1)
    found = windows_of(images, op, (3, 3), most)
    assert found.dtype == dtype and np.array_equal(found, wanted)


def test_windows_of_volumes():
    images = [np.random.default_rng(0).integers(0, 100, (2, 4, 5, 6)).astype(np.uint8)]
    wanted = patches(images[0][None], Conv3d(), (2, 2, 2), 9)
    assert np.array_equal(windows_of(images, Conv3d(), (2, 2, 2), 9), wanted)
