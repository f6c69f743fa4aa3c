"""Small networks with expected results from OpenCV's dnn module, recorded by ``make_opencv_expected.py``."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tests.support.caffe.networks import layer, with_input

EXPECTED = Path(__file__).with_name("opencv_expected.npz")
"""Results of the cases, by index and name."""

IMAGE = (1, 4, 7, 6)


@dataclass(frozen=True)
class OpenCVCase:
    """Layers after the inputs ``x0``, ``x1`` ... Blobs and inputs are random; the seed is the index in the list."""

    id: str
    layers: str
    inputs: tuple[tuple[int, ...], ...] = (IMAGE,)
    blobs: dict[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    output: str = "y"

    @property
    def text(self) -> str:
        heads = [
            with_input(s, "").replace('"x"', f'"x{k}"').replace('"in"', f'"in{k}"') for k, s in enumerate(self.inputs)
        ]
        return "".join(heads) + self.layers

    def arrays(self):
        """Inputs, and blobs by layer. Variances (the third blob or later) must be positive."""
        generator = np.random.default_rng([len(self.layers), *map(ord, self.id)])
        inputs = [(4 * generator.random(shape) - 2).astype(np.float32) for shape in self.inputs]
        blobs = {
            name: [(generator.random(shape) + 0.25).astype(np.float32) for shape in shapes]
            for name, shapes in self.blobs.items()
        }
        return inputs, blobs


def _one(id_, type_, parameters="", inputs=(IMAGE,), blobs=(), bottoms="x0", tops="y"):
    return OpenCVCase(id_, layer(type_, parameters, bottoms, tops), inputs, {"layer": tuple(blobs)} if blobs else {})


def _convolution(id_, type_, parameters, kernel):
    text = f"convolution_param {{ num_output: 6 {parameters} }}"
    return _one(id_, type_, text, blobs=(kernel, (6,)))


def _pooling(parameters):
    return _one(f"pooling {parameters}", "Pooling", f"pooling_param {{ {parameters} }}")


SSD = (
    layer("PriorBox", "prior_box_param { min_size: 8 max_size: 20 aspect_ratio: 2 flip: true clip: %s "
          "variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2 }", "x1 x0", "prior", "prior")
)  # fmt: skip

BY_AXIS = "kernel_h: 1 kernel_w: 3 stride_h: 2 stride_w: 1"

CASES = [
    _convolution("convolution", "Convolution", "kernel_size: 3 pad: 1 stride: 2", (6, 4, 3, 3)),
    _convolution("grouped", "Convolution", "kernel_size: 3 group: 2 dilation: 2 pad: 2", (6, 2, 3, 3)),
    _convolution("by axis", "Convolution", f"{BY_AXIS} pad_h: 0 pad_w: 1", (6, 4, 1, 3)),
    _convolution("deconvolution", "Deconvolution", "kernel_size: 4 stride: 2 pad: 1", (4, 6, 4, 4)),
    _convolution("grouped deconvolution", "Deconvolution", "kernel_size: 3 stride: 2 group: 2", (4, 3, 3, 3)),
    *map(
        _pooling,
        [
            "kernel_size: 2 stride: 2",
            "kernel_size: 3 stride: 2 pad: 1",
            "kernel_size: 3 stride: 3 pad: 1",
            "pool: AVE kernel_size: 3 stride: 2 pad: 1",
            "pool: AVE kernel_size: 2 stride: 2",
            "pool: AVE kernel_h: 3 kernel_w: 2 stride_h: 2 stride_w: 1 pad_h: 1 pad_w: 0",
            "pool: MAX global_pooling: true",
            "pool: AVE global_pooling: true",
        ],
    ),
    _one("lrn across", "LRN", "lrn_param { local_size: 3 alpha: 0.5 beta: 0.75 }"),  # OpenCV ignores k
    _one("lrn within", "LRN", "lrn_param { local_size: 3 alpha: 0.5 beta: 0.75 norm_region: WITHIN_CHANNEL }"),
    _one("inner product", "InnerProduct", "inner_product_param { num_output: 5 }", blobs=((5, 168), (5,))),
    _one("softmax", "Softmax"),
    _one("softmax of rows", "Softmax", "softmax_param { axis: 3 }"),
    *(_one(type_, type_) for type_ in ("ReLU", "ReLU6", "ELU", "AbsVal", "BNLL", "Sigmoid", "TanH", "Flatten")),
    _one("leaky", "ReLU", "relu_param { negative_slope: 0.25 }"),
    _one("prelu", "PReLU", blobs=((4,),)),
    _one("power", "Power", "power_param { power: 2 scale: 0.5 shift: 1 }"),
    _one("exp", "Exp", "exp_param { base: 2 scale: 0.5 shift: 1 }"),
    _one("permute", "Permute", "permute_param { order: 0 order: 2 order: 3 order: 1 }"),
    _one("flatten two", "Flatten", "flatten_param { axis: 1 end_axis: 2 }"),
    _one("reshape", "Reshape", "reshape_param { shape { dim: 0 dim: -1 dim: 3 } }"),
    _one("reshape a range", "Reshape", "reshape_param { axis: 1 num_axes: 2 shape { dim: -1 } }"),
    _one("sum", "Eltwise", "eltwise_param { coeff: 0.5 coeff: -2 }", (IMAGE, IMAGE), bottoms="x0 x1"),
    _one("product", "Eltwise", "eltwise_param { operation: PROD }", (IMAGE, IMAGE), bottoms="x0 x1"),
    _one("maximum", "Eltwise", "eltwise_param { operation: MAX }", (IMAGE, IMAGE), bottoms="x0 x1"),
    _one("concat", "Concat", "concat_param { axis: 2 }", (IMAGE, IMAGE), bottoms="x0 x1"),
    _one("slice", "Slice", "slice_param { axis: 1 slice_point: 1 slice_point: 3 }", tops="y a b"),
    _one("crop", "Crop", "crop_param { axis: 2 offset: 1 offset: 2 }", (IMAGE, (1, 4, 3, 4)), bottoms="x0 x1"),
    _one("scale", "Scale", "scale_param { bias_term: true }", blobs=((4,), (4,))),
    _one("scale by two", "Scale", "scale_param { axis: 0 }", (IMAGE, (1, 4)), bottoms="x0 x1"),
    _one("batch norm", "BatchNorm", blobs=((4,), (4,), (1,))),
    _one("mvn", "MVN"),
    _one("mvn across", "MVN", "mvn_param { across_channels: true normalize_variance: true }"),
    _one("interp", "Interp", "interp_param { height: 13 width: 4 }"),
    _one("interp zoom", "Interp", "interp_param { zoom_factor: 2 }"),
    _one("normalize", "Normalize", "norm_param { across_spatial: false channel_shared: false }", blobs=((4,),)),
    _one("normalize all", "Normalize", "norm_param { across_spatial: true channel_shared: true }", blobs=((1,),)),
    _one("shuffle", "ShuffleChannel", "shuffle_channel_param { group: 2 }"),
    _one("reorg", "Reorg", "reorg_param { stride: 2 }", ((1, 8, 4, 6),)),
    OpenCVCase("prior boxes", SSD % "false", ((1, 3, 40, 60), (1, 4, 2, 3)), output="prior"),
    OpenCVCase("clipped prior boxes", SSD % "true", ((1, 3, 40, 60), (1, 4, 2, 3)), output="prior"),
    OpenCVCase(
        "detection output",
        SSD % "false"
        + layer("Softmax", "softmax_param { axis: 2 }", "x3", "p", "p")
        + layer("Flatten", "", "p", "conf", "conf")
        + layer(
            "DetectionOutput",
            "detection_output_param { num_classes: 3 share_location: true background_label_id: 0 "
            "code_type: CENTER_SIZE nms_param { nms_threshold: 0.45 top_k: 40 } "
            "keep_top_k: 12 confidence_threshold: 0.2 }",
            "x2 conf prior",
        ),
        ((1, 3, 40, 60), (1, 4, 2, 3), (1, 96), (1, 24, 3)),
    ),
    OpenCVCase(
        "in place and back",
        layer("Convolution", "convolution_param { num_output: 4 kernel_size: 1 }", "x0", "a", "conv")
        + layer("BatchNorm", "", "a", "a", "bn")
        + layer("Scale", "scale_param { bias_term: true }", "a", "a", "scale")
        + layer("ReLU", "", "a", "a", "relu")
        + layer("Eltwise", "", "x0 a", "y", "sum"),
        (IMAGE,),
        {"conv": ((4, 4, 1, 1), (4,)), "bn": ((4,), (4,), (1,)), "scale": ((4,), (4,))},
    ),
]  # fmt: skip
