"""Random images and volumes: inputs of the networks."""

import torch
from torch import Tensor, nn


def scene(shape: tuple[int, ...]) -> Tensor:
    """Return one image (or volume) of this shape, channels first, in the value range of normalized photographs.

    It is a smooth background with rectangles and noise. Brightness, colors, contrast and detail differ from image to
    image, so that the outputs of a network differ too.
    """
    detail = int(torch.randint(2, 9, ()))
    coarse = torch.randn(1, shape[0], *(max(1, extent // 32 + detail) for extent in shape[1:]))
    mode = "trilinear" if len(shape) == 4 else "bilinear"
    image = nn.functional.interpolate(coarse, size=shape[1:], mode=mode, align_corners=False)[0]
    channels = (shape[0],) + (1,) * (len(shape) - 1)
    for _ in range(3):
        low = [int(torch.randint(0, max(1, extent - 1), ())) for extent in shape[1:]]
        window = tuple(slice(first, first + max(1, extent // 3)) for first, extent in zip(low, shape[1:], strict=True))
        image[(slice(None), *window)] = torch.randn(channels)
    contrast = torch.empty(()).uniform_(0.3, 1.5)
    return contrast * (image + 0.2 * torch.randn(shape)) + 0.5 * torch.randn(channels)
