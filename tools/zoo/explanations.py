"""Reasons why networks of the zoo miss a limit, by the name of the network. `zoo_page` prints them."""

_ZERO_POINTS = (
    "hard swish and SiLU leave almost half of the integers of symmetric INT8 unused; ONNX Runtime's tensors have zero "
    "points. `--precision '*=asymmetric'`"
)

_BOTH = "8 bits do not suffice for it with random weights: ONNX Runtime's model is further from float"

_MISSES = "8 bits do not suffice for it with random weights: ONNX Runtime's model misses the limit too"

_FLOAT = (
    "the search for decisions keeps every convolution in float: with random weights, no smaller part of the network in "
    "float gives the same boxes in the same order. A note of the conversion says so"
)

EXPLANATIONS: dict[str, str] = {
    "lcnet": f"{_ZERO_POINTS} gives 0.9959",
    "fbnetv3": f"{_ZERO_POINTS} gives 0.9622, about as much as ONNX Runtime's",
    "efficientvit_m": "just below the limit, as ONNX Runtime's model is just above it",
    "coat": _BOTH,
    "visformer": _BOTH,
    "centernet": _FLOAT,
    "gemma": "8 samples are too few: the target of 20 dB is met on them and missed on others. 32 samples give 0.9952",
    "mixtral": "a topk chooses the experts of every token, and INT8 would change the choice: the network before the "
    "last choice stays in float",
    "keypoint_rcnn": "its INT8 model is close. Keypoints are indices of the largest elements of maps: of two nearly "
    "equal ones, ONNX Runtime without its graph optimizations chooses the other one too",
    "efficientvit_b": "8 bits do not suffice for its linear attention with random weights: ONNX Runtime's model is "
    "further from float",
    "dpt": "8 bits do not suffice for its fused feature maps with random weights: ONNX Runtime's model is further from "
    "float, and neither zero points (0.9842) nor ranges by minimum and maximum (0.9857) help",
    "mamba": "8 bits do not suffice for its unrolled selective scan with random weights: ONNX Runtime's models are "
    "further from float",
    "levit": _BOTH,
    "tiny_vit": _BOTH,
    "repvit": f"{_MISSES}; zero points give 0.9680",
    "rexnet": f"{_MISSES}; zero points (0.9835) do not help",
    "faster_rcnn": _FLOAT,
    "mask_rcnn": _FLOAT,
    "mambaout": "8 bits do not suffice for its gated blocks, which multiply two branches, with random weights: ONNX "
    "Runtime's model is further from float",
}
