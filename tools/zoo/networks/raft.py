"""RAFT: optical flow by repeated lookups of correlations (Teed and Deng, 2020)."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from tools.zoo.networks.network import Network, images

LEVELS = 2
RADIUS = 2


class Residual(nn.Module):
    """Two convs with instance normalization, and a shortcut."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(inputs, outputs, 3, 2, 1), nn.InstanceNorm2d(outputs), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(outputs, outputs, 3, padding=1), nn.InstanceNorm2d(outputs), nn.ReLU())
        self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, 2), nn.InstanceNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Return activations with half the height and width."""
        return torch.relu(self.shortcut(x) + self.second(self.first(x)))


def encoder(outputs: int) -> nn.Module:
    """Return an encoder of stride 8."""
    stem = [nn.Conv2d(3, 16, 7, 2, 3), nn.InstanceNorm2d(16), nn.ReLU()]
    return nn.Sequential(*stem, Residual(16, 24), Residual(24, 32), nn.Conv2d(32, outputs, 1))


def coordinates(batch: int, height: int, width: int) -> Tensor:
    """Return the pixel coordinates (x, y) of every position: [batch, 2, height, width]."""
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    return torch.stack((columns, rows), 0).float()[None].repeat(batch, 1, 1, 1)


def sample(image: Tensor, places: Tensor) -> Tensor:
    """Return bilinear samples at pixel coordinates."""
    height, width = image.shape[-2:]
    columns, rows = places.split([1, 1], 3)
    grid = torch.cat([2 * columns / (width - 1) - 1, 2 * rows / (height - 1) - 1], 3)
    return functional.grid_sample(image, grid, align_corners=True)


class ConvGru(nn.Module):
    """A gated recurrent unit of convs."""

    def __init__(self, hidden: int, inputs: int) -> None:
        super().__init__()
        self.z, self.r, self.q = (nn.Conv2d(hidden + inputs, hidden, 3, padding=1) for _ in range(3))

    def forward(self, h: Tensor, x: Tensor) -> Tensor:
        """Return the next state."""
        both = torch.cat([h, x], 1)
        z, r = torch.sigmoid(self.z(both)), torch.sigmoid(self.r(both))
        q = torch.tanh(self.q(torch.cat([r * h, x], 1)))
        return (1 - z) * h + z * q


class Raft(nn.Module):
    """Encoders, correlation pyramid, three iterations, convex upsampling."""

    def __init__(self, hidden: int = 16, context: int = 16, iterations: int = 3) -> None:
        super().__init__()
        self.hidden, self.context, self.iterations = hidden, context, iterations
        self.features, self.contexts = encoder(32), encoder(hidden + context)
        looked_up = LEVELS * (2 * RADIUS + 1) ** 2
        self.of_correlation = nn.Sequential(nn.Conv2d(looked_up, 24, 1), nn.ReLU())
        self.of_flow = nn.Sequential(nn.Conv2d(2, 8, 7, padding=3), nn.ReLU())
        self.motion = nn.Sequential(nn.Conv2d(32, 14, 3, padding=1), nn.ReLU())
        self.gru = ConvGru(hidden, context + 16)
        self.flow = nn.Sequential(nn.Conv2d(hidden, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 2, 3, padding=1))
        self.mask = nn.Sequential(nn.Conv2d(hidden, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64 * 9, 1))

    @staticmethod
    def pyramid(left: Tensor, right: Tensor) -> list[Tensor]:
        """Return the correlations of all pairs of positions in both images, with the second at several resolutions."""
        batch, channels, height, width = left.shape
        products = torch.matmul(left.flatten(2).transpose(1, 2), right.flatten(2)) / channels**0.5
        levels = [products.reshape(batch * height * width, 1, height, width)]
        while len(levels) < LEVELS:
            levels.append(functional.avg_pool2d(levels[-1], 2, stride=2))
        return levels

    @staticmethod
    def lookup(levels: list[Tensor], places: Tensor) -> Tensor:
        """Return the correlations in a window around the given positions, at every resolution."""
        places = places.permute(0, 2, 3, 1)
        batch, height, width, _ = places.shape
        steps = torch.linspace(-RADIUS, RADIUS, 2 * RADIUS + 1)
        window = torch.stack(torch.meshgrid(steps, steps, indexing="ij"), -1)
        found = []
        for level, correlations in enumerate(levels):
            center = places.reshape(batch * height * width, 1, 1, 2) / 2**level
            near = sample(correlations, center + window.view(1, 2 * RADIUS + 1, 2 * RADIUS + 1, 2))
            found.append(near.view(batch, height, width, -1))
        return torch.cat(found, -1).permute(0, 3, 1, 2).contiguous()

    @staticmethod
    def upsample(flow: Tensor, mask: Tensor) -> Tensor:
        """Return the flow at eight times the resolution, each pixel a convex combination of nine neighbors."""
        batch, _, height, width = flow.shape
        mask = torch.softmax(mask.view(batch, 1, 9, 8, 8, height, width), 2)
        near = functional.unfold(8 * flow, [3, 3], padding=1).view(batch, 2, 9, 1, 1, height, width)
        combined = torch.sum(mask * near, 2).permute(0, 1, 4, 2, 5, 3)
        return combined.reshape(batch, 2, 8 * height, 8 * width)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Return the flow from the first image to the second."""
        left, right = self.features(first), self.features(second)
        levels = self.pyramid(left, right)
        state, context = self.contexts(first).split([self.hidden, self.context], 1)
        state, context = torch.tanh(state), torch.relu(context)
        batch, _, height, width = left.shape
        start = coordinates(batch, height, width)
        places = coordinates(batch, height, width)
        for _ in range(self.iterations):
            flow = places - start
            near = self.of_correlation(self.lookup(levels, places))
            motion = torch.cat([self.motion(torch.cat([near, self.of_flow(flow)], 1)), flow], 1)
            state = self.gru(state, torch.cat([context, motion], 1))
            places = places + self.flow(state)
        return self.upsample(places - start, 0.25 * self.mask(state))


def pair(batch: int) -> tuple[Tensor, Tensor]:
    """Return two images. The second is the first one shifted by two pixels."""
    (first,) = images(3, 64, 64)(batch)
    return first, torch.roll(first, (2, 1), (2, 3))


NETWORKS = [Network("raft", Raft, pair, ("first", "second"), ("flow",))]
