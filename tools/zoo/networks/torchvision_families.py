"""Networks of torchvision that timm does not have: segmentation, detection, optical flow, video."""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor, nn

from tools.zoo.networks import torchvision_operators  # noqa: F401  # defines operators that torchvision needs
from tools.zoo.networks.network import ONCE, Network, images

from torchvision.models import detection, get_model, optical_flow  # isort: skip  # after the operators

CLASSES = 10


class Segmentation(nn.Module):
    """A segmentation network that returns its first map only, without the dictionary around it."""

    def __init__(self, model: str, **options: Any) -> None:
        super().__init__()
        self.body = get_model(model, weights=None, weights_backbone=None, num_classes=CLASSES, **options)

    def forward(self, x: Tensor) -> Tensor:
        """Return the class scores of each pixel."""
        return self.body(x)["out"]


class Heads(nn.Module):
    """A one-stage detector up to its heads: the results before boxes are decoded and selected."""

    def __init__(self, build: Callable[..., nn.Module], **options: Any) -> None:
        super().__init__()
        self.body = build(weights=None, weights_backbone=None, num_classes=CLASSES, **options)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return the results of the heads, in the order of their names."""
        features = self.body.backbone(x)
        maps = list(features.values()) if isinstance(features, dict) else [features]
        found = self.body.head(maps)
        return tuple(found[name] for name in sorted(found))


class Detector(nn.Module):
    """A whole detector; the exporters unroll its lists. Only the first image has results."""

    def __init__(self, build: Callable[..., nn.Module], names: tuple[str, ...], **options: Any) -> None:
        super().__init__()
        self.body = build(weights=None, weights_backbone=None, num_classes=CLASSES, **options)
        self.names = names

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return boxes, labels, scores and what else the detector finds."""
        found = self.body([image.sigmoid() for image in x])[0]
        return tuple(found[name] for name in self.names)


def mask_rcnn(**options: Any) -> nn.Module:
    """Return Mask R-CNN with the backbone, the pyramid and the anchors of ``fasterrcnn_mobilenet_v3_large_fpn``.

    With random weights and ResNet-50, two runs of ONNX Runtime with and without its optimizations differ by 0.001 of
    the range of the masks.
    """
    del options["weights"], options["weights_backbone"]
    backbone = detection.backbone_utils.mobilenet_backbone(
        backbone_name="mobilenet_v3_large", weights=None, fpn=True, norm_layer=nn.BatchNorm2d, trainable_layers=6
    )
    anchors = detection.anchor_utils.AnchorGenerator(((32, 64, 128, 256, 512),) * 3, ((0.5, 1.0, 2.0),) * 3)
    return detection.MaskRCNN(backbone, rpn_anchor_generator=anchors, **options)


class Flow(nn.Module):
    """RAFT with two refinements; the images are the halves of the input's channels."""

    def __init__(self) -> None:
        super().__init__()
        self.body = optical_flow.raft_small(weights=None)

    def forward(self, x: Tensor) -> Tensor:
        """Return the last flow."""
        return self.body(x[:, :3].tanh(), x[:, 3:].tanh(), num_flow_updates=2)[-1]


SMALL: dict[str, Any] = {
    "min_size": 96,
    "max_size": 128,
    "rpn_pre_nms_top_n_test": 60,
    "rpn_post_nms_top_n_test": 40,
    "box_score_thresh": 0.3,
    "box_detections_per_img": 20,
}
"""Extents to which detectors resize, few candidates, and a threshold that some classes of random weights exceed."""

WHOLE = (("torchscript", 17, "fixed"), ("dynamo", 20, "fixed"))
"""Exports of whole detectors, for one image."""

CLASSIFIERS = {"alexnet": 96, "googlenet": 64, "shufflenet_v2_x0_5": 64, "squeezenet1_1": 64}
MAPS = {
    "deeplabv3_mobilenet_v3_large": 64,
    "fcn_resnet50": 64,
    "lraspp_mobilenet_v3_large": 64,
}
VIDEOS = {"r3d_18": (8, 56), "swin3d_t": (8, 64)}
HEADS: dict[str, tuple[Callable[..., nn.Module], tuple[str, ...], int]] = {
    "ssd": (detection.ssd300_vgg16, ("boxes", "logits"), 300),
    "ssdlite": (detection.ssdlite320_mobilenet_v3_large, ("boxes", "logits"), 320),
    "retinanet": (detection.retinanet_resnet50_fpn, ("boxes", "logits"), 64),
    "fcos": (detection.fcos_resnet50_fpn, ("boxes", "centers", "logits"), 64),
}
DETECTORS: dict[str, tuple[Callable[..., nn.Module], tuple[str, ...]]] = {
    "faster_rcnn": (detection.fasterrcnn_mobilenet_v3_large_320_fpn, ("boxes", "labels", "scores")),
    "keypoint_rcnn": (detection.keypointrcnn_resnet50_fpn, ("boxes", "labels", "scores", "keypoints")),
    "mask_rcnn": (mask_rcnn, ("boxes", "labels", "scores", "masks")),
}


def classifier(model: str, options: dict[str, Any]) -> nn.Module:
    """Return a classifier of torchvision with random weights."""
    return get_model(model, weights=None, num_classes=CLASSES, **options)


def family(name: str, build: Callable[[], nn.Module], shape: tuple[int, ...], results: tuple[str, ...]) -> Network:
    """Return a network with one image or video as input."""
    exports = WHOLE if name in DETECTORS else ONCE
    return Network(name, build, images(*shape), ("image",), results, package="torchvision", exports=exports)


NETWORKS = [
    *(
        family(
            name.partition("_")[0].rstrip("1"),
            partial(classifier, name, {"init_weights": True, "aux_logits": False} if name == "googlenet" else {}),
            (3, extent, extent),
            ("logits",),
        )
        for name, extent in CLASSIFIERS.items()
    ),
    *(
        family(name.partition("_")[0], partial(Segmentation, name), (3, extent, extent), ("map",))
        for name, extent in MAPS.items()
    ),
    *(
        family(name, partial(classifier, name, {}), (3, frames, extent, extent), ("logits",))
        for name, (frames, extent) in VIDEOS.items()
    ),
    *(
        family(name, partial(Heads, build), (3, extent, extent), results)
        for name, (build, results, extent) in HEADS.items()
    ),
    *(
        family(name, partial(Detector, build, results, **SMALL), (3, 96, 96), results)
        for name, (build, results) in DETECTORS.items()
    ),
    family("raft_small", Flow, (6, 128, 128), ("flow",)),
]
