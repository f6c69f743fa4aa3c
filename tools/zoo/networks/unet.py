"""3D U-Net (Cicek et al., 2016)."""

import torch
from torch import Tensor, nn

from tools.zoo.networks.network import ONCE, VARIED, Network, images


def double(inputs: int, outputs: int) -> nn.Sequential:
    """Return two convs with batch normalization and ReLU."""
    parts: list[nn.Module] = []
    for channels in (inputs, outputs):
        parts += [nn.Conv3d(channels, outputs, 3, padding=1, bias=False), nn.BatchNorm3d(outputs), nn.ReLU()]
    return nn.Sequential(*parts)


class UNet3d(nn.Module):
    """Two downsampling steps by pooling, two upsampling steps by transposed convs, with concatenated shortcuts."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.down1, self.down2, self.bottom = double(1, 8), double(8, 16), double(16, 32)
        self.pool = nn.MaxPool3d(2)
        self.up2, self.up1 = nn.ConvTranspose3d(32, 16, 2, 2), nn.ConvTranspose3d(16, 8, 2, 2)
        self.join2, self.join1 = double(32, 16), double(16, 8)
        self.head = nn.Conv3d(8, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits per voxel."""
        first = self.down1(x)
        second = self.down2(self.pool(first))
        y = self.up2(self.bottom(self.pool(second)))
        y = self.up1(self.join2(torch.cat((second, y), 1)))
        return self.head(self.join1(torch.cat((first, y), 1)))


NETWORKS = [Network("unet3d", UNet3d, images(1, 16, 16, 16), ("volume",), ("logits",), exports=ONCE + VARIED)]
