"""YOLOv5 and YOLOv8: backbone, path aggregation neck, and heads that decode boxes (Ultralytics, 2020 and 2023)."""

import torch
from torch import Tensor, nn

from tools.zoo.networks.network import ONCE, VARIED, Network, images


class Conv(nn.Module):
    """Conv, batch normalization, SiLU."""

    def __init__(self, inputs: int, outputs: int, kernel: int = 1, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, (kernel - 1) // 2, bias=False)
        self.norm, self.active = nn.BatchNorm2d(outputs), nn.SiLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """Return the activations."""
        return self.active(self.norm(self.conv(x)))


class Bottleneck(nn.Module):
    """Two convs and a residual add."""

    def __init__(self, channels: int, kernel: int, has_shortcut: bool) -> None:
        super().__init__()
        self.first, self.second = Conv(channels, channels, kernel), Conv(channels, channels, 3)
        self.has_shortcut = has_shortcut

    def forward(self, x: Tensor) -> Tensor:
        """Return the activations."""
        return x + self.second(self.first(x)) if self.has_shortcut else self.second(self.first(x))


class C3(nn.Module):
    """Cross-stage block of YOLOv5: two 1x1 convs, one followed by bottlenecks, joined by a third."""

    def __init__(self, inputs: int, outputs: int, has_shortcut: bool = True) -> None:
        super().__init__()
        half = outputs // 2
        self.left, self.right, self.joined = Conv(inputs, half), Conv(inputs, half), Conv(outputs, outputs)
        self.body = Bottleneck(half, 1, has_shortcut)

    def forward(self, x: Tensor) -> Tensor:
        """Return the activations."""
        return self.joined(torch.cat((self.body(self.left(x)), self.right(x)), 1))


class C2f(nn.Module):
    """Cross-stage block of YOLOv8: both halves of a conv's result and all bottleneck results are concatenated."""

    def __init__(self, inputs: int, outputs: int, has_shortcut: bool = True, repeats: int = 2) -> None:
        super().__init__()
        half = outputs // 2
        self.first, self.joined = Conv(inputs, outputs), Conv((2 + repeats) * half, outputs)
        self.body = nn.ModuleList(Bottleneck(half, 3, has_shortcut) for _ in range(repeats))

    def forward(self, x: Tensor) -> Tensor:
        """Return the activations."""
        parts = list(self.first(x).chunk(2, 1))
        parts.extend(block(parts[-1]) for block in self.body)
        return self.joined(torch.cat(parts, 1))


class Sppf(nn.Module):
    """Spatial pyramid: three poolings in a row."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.joined = Conv(channels, channels // 2), Conv(2 * channels, channels)
        self.pool = nn.MaxPool2d(5, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Return the activations."""
        x = self.first(x)
        y = self.pool(x)
        z = self.pool(y)
        return self.joined(torch.cat((x, y, z, self.pool(z)), 1))


class Body(nn.Module):
    """Backbone and neck; three feature maps of strides 8, 16 and 32."""

    def __init__(self, block: type[nn.Module], width: int = 8) -> None:
        super().__init__()
        w = width
        self.stem = nn.Sequential(Conv(3, w, 6 if block is C3 else 3, 2), Conv(w, 2 * w, 3, 2), block(2 * w, 2 * w))
        self.down3 = nn.Sequential(Conv(2 * w, 4 * w, 3, 2), block(4 * w, 4 * w))
        self.down4 = nn.Sequential(Conv(4 * w, 4 * w, 3, 2), block(4 * w, 4 * w))
        self.down5 = nn.Sequential(Conv(4 * w, 8 * w, 3, 2), block(8 * w, 8 * w), Sppf(8 * w))
        self.up = nn.Upsample(scale_factor=2, mode="nearest")
        self.up4, self.up3 = block(12 * w, 4 * w, False), block(8 * w, 4 * w, False)
        self.out3, self.out4 = Conv(4 * w, 4 * w, 3, 2), Conv(4 * w, 4 * w, 3, 2)
        self.neck4, self.neck5 = block(8 * w, 4 * w, False), block(12 * w, 8 * w, False)

    def forward(self, x: Tensor) -> list[Tensor]:
        """Return the feature maps."""
        p3 = self.down3(self.stem(x))
        p4 = self.down4(p3)
        p5 = self.down5(p4)
        n4 = self.up4(torch.cat((self.up(p5), p4), 1))
        n3 = self.up3(torch.cat((self.up(n4), p3), 1))
        n4 = self.neck4(torch.cat((self.out3(n3), n4), 1))
        return [n3, n4, self.neck5(torch.cat((self.out4(n4), p5), 1))]


STRIDES = (8, 16, 32)
CHANNELS = (32, 32, 64)
ANCHORS = ((10.0, 13, 16, 30, 33, 23), (30.0, 61, 62, 45, 59, 119), (116.0, 90, 156, 198, 373, 326))


class YoloV5(nn.Module):
    """YOLOv5 with three anchors per position; the head decodes box offsets."""

    anchors: Tensor

    def __init__(self, classes: int = 5) -> None:
        super().__init__()
        self.body = Body(C3)
        self.entries = classes + 5
        self.heads = nn.ModuleList(nn.Conv2d(channels, 3 * self.entries, 1) for channels in CHANNELS)
        self.register_buffer("anchors", torch.tensor(ANCHORS).view(3, 3, 2))

    def forward(self, x: Tensor) -> Tensor:
        """Return boxes, objectness and class scores: [batch, anchors, 5 + classes]."""
        found = []
        for level, (features, head) in enumerate(zip(self.body(x), self.heads, strict=True)):
            raw = head(features)
            batch, _, height, width = raw.shape
            raw = raw.view(batch, 3, self.entries, height, width).permute(0, 1, 3, 4, 2).contiguous()
            rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
            grid = torch.stack((columns, rows), 2).expand(1, 3, height, width, 2).to(raw.dtype) - 0.5
            sizes = self.anchors[level].view(1, 3, 1, 1, 2).expand(1, 3, height, width, 2)
            center, extent, scores = raw.sigmoid().split((2, 2, self.entries - 4), 4)
            center = (center * 2 + grid) * STRIDES[level]
            extent = (extent * 2) ** 2 * sizes
            decoded = torch.cat((center, extent, scores), 4)
            found.append(decoded.view(batch, 3 * height * width, self.entries))
        return torch.cat(found, 1)


class YoloV8(nn.Module):
    """YOLOv8 without anchors; the head decodes distributions of the distances to the four sides of a box."""

    bins = 16

    def __init__(self, classes: int = 5) -> None:
        super().__init__()
        self.body = Body(C2f)
        self.classes = classes
        self.boxes = nn.ModuleList(self._branch(channels, 4 * self.bins) for channels in CHANNELS)
        self.scores = nn.ModuleList(self._branch(channels, classes) for channels in CHANNELS)
        self.distances = nn.Conv2d(self.bins, 1, 1, bias=False).requires_grad_(False)
        self.distances.weight.data[:] = torch.arange(self.bins, dtype=torch.float).view(1, self.bins, 1, 1)

    @staticmethod
    def _branch(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(Conv(inputs, 16, 3), Conv(16, 16, 3), nn.Conv2d(16, outputs, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Return boxes and class scores: [batch, 4 + classes, positions]."""
        maps = [
            torch.cat((boxes(features), scores(features)), 1)
            for features, boxes, scores in zip(self.body(x), self.boxes, self.scores, strict=True)
        ]
        points, strides = [], []
        for level, features in enumerate(maps):
            _, _, height, width = features.shape
            columns = torch.arange(width, dtype=x.dtype) + 0.5
            rows = torch.arange(height, dtype=x.dtype) + 0.5
            grid = torch.meshgrid(rows, columns, indexing="ij")
            points.append(torch.stack((grid[1], grid[0]), -1).view(-1, 2))
            strides.append(torch.full((height * width, 1), STRIDES[level], dtype=x.dtype))
        anchors, steps = (torch.cat(part).transpose(0, 1) for part in (points, strides))
        entries = 4 * self.bins + self.classes
        joined = torch.cat([features.view(x.shape[0], entries, -1) for features in maps], 2)
        boxes, scores = joined.split((4 * self.bins, self.classes), 1)
        places = boxes.shape[2]
        weights = boxes.view(x.shape[0], 4, self.bins, places).transpose(2, 1).softmax(1)
        near, far = self.distances(weights).view(x.shape[0], 4, places).chunk(2, 1)
        first, last = anchors.unsqueeze(0) - near, anchors.unsqueeze(0) + far
        decoded = torch.cat(((first + last) / 2, last - first), 1) * steps
        return torch.cat((decoded, scores.sigmoid()), 1)


NETWORKS = [
    Network("yolov5", YoloV5, images(3, 96, 96), ("images",), ("output0",)),
    Network("yolov8", YoloV8, images(3, 96, 96), ("images",), ("output0",), exports=ONCE + VARIED),
]
