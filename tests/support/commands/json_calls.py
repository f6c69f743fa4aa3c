"""Command lines for every command that prints JSON, on the bundled example, and the check of published schemas."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import tpuconvert as tc
from tests.support.networks.decoders import decoder

PIXELS = ["--preprocess", "color=GRAY,scale=0.0625"]
INT8 = [*PIXELS, "--calibration", "calibration.npz"]

CALLS: dict[str, list[list[str]]] = {
    "convert": [
        ["convert", "digits.onnx", "-o", "float.tpum"],
        ["convert", "digits.onnx", "-o", "net.tpum", "--quantize", "int8", *INT8, "--verify", "--golden", "1"],
    ],
    "check": [["check", "digits.onnx"], ["check", "digits.prototxt"]],
    "inspect": [["inspect", "net.tpum"], ["inspect", "float.tpum"], ["inspect", "digits.tflite"]],
    "run": [
        ["run", "net.tpum", "calibration.npz"],
        ["run", "net.tpum", "one.png"],
        ["run", "net.tpum", "one.png", "--draw", "o.png"],
    ],
    "generate": [["generate", "decoder.tpum", "--tokens", "1,2,3", "--max-new-tokens", "2"]],
    "bench": [
        ["bench", "net.tpum", "--runs", "2", "--warmup", "0"],
        ["bench", "net.tpum", "--runs", "2", "--profile", "--backend", "reference"],
        ["bench", "float.tpum", "--runs", "2", "--profile", "--threads", "2"],
    ],
    "verify": [
        ["verify", "digits.onnx", "net.tpum", "--data", "calibration.npz"],
        ["verify", "digits.onnx", "float.tpum", "--oracle", "none"],
        ["verify", "digits.onnx", "net.tpum", "--data", "calibration.npz", "--min-sqnr", "200"],
    ],
    "attribute": [
        ["attribute", "digits.onnx", "net.tpum", "--data", "calibration.npz", "--samples", "4"],
        ["attribute", "digits.onnx", "net.tpum", "--nodes", "2", "--samples", "2"],
    ],
    "diff": [
        ["diff", "float.tpum", "net.tpum", "--data", "calibration.npz"],
        ["diff", "digits.onnx", "digits.tflite", "--as-read"],
        ["diff", "float.tpum", "digits.onnx", "--samples", "0"],
        ["diff", "float.tpum", "net.tpum", "--fail-on", "precision"],
    ],
    "tune": [
        ["tune", "digits.onnx", *INT8, "--data", "labeled.npz", "--max-drop", "0", "-o", "mixed.tpum"],
        [
            "tune",
            "digits.onnx",
            *INT8,
            "--data",
            "labeled.npz",
            "--metric",
            "sqnr",
            "--max-drop",
            "90",
            "-o",
            "b.tpum",
        ],
    ],
    "calibrate": [["calibrate", "digits.onnx", *INT8, "-o", "ranges.json"]],
    "quantize": [["quantize", "digits.onnx", *PIXELS, "--ranges", "ranges.json", "-o", "ranged.tpum"]],
    "evaluate": [
        ["evaluate", "net.tpum", "--data", "labeled.npz"],
        ["evaluate", "net.tpum", "--data", "labeled.npz", "--metric", "top1", "--min-top1", "1", "--doctor"],
        ["evaluate", "net.tpum", "--data", "labeled.npz", "--reference", "net.tpum", "--max", "flips=0"],
    ],
    "doctor": [
        ["doctor"],
        ["doctor", "digits.onnx", "--data", "labeled.npz", *PIXELS],
        ["doctor", "digits.onnx", "--data", "labeled.npz", "--preprocess", "color=GRAY,scale=16"],
        ["doctor", "net.tpum", "--data", "calibration.npz"],
    ],
    "export": [["export", "net.tpum", "exported"], ["export", "net.tpum", "exported", "--with-checks"]],
    "device": [
        ["device", "plan", "net.tpum", "planned"],
        ["device", "compare", "net.tpum", "planned/expected.npz"],
        ["device", "check", "net.tpum"],
    ],
    "reduce": [["reduce", "unsupported.onnx", "--until", "error"]],
    "reproduce": [["reproduce", "digits.onnx", "float.tpum"]],
    "ci": [["ci", "manifest.yaml", "--jobs", "1"], ["ci", "manifest.yaml", "--jobs", "1"]],
    "ops": [
        ["ops"],
        ["ops", "--chip", "bm1682"],
        ["ops", "conv"],
        ["ops", "softmax_int"],
        ["ops", "--format", "onnx"],
        ["ops", "--format", "tflite"],
        ["ops", "--format", "caffe"],
    ],
    "op": [["op", "test", "swish.py"], ["op", "test", "swish.py", "--require-native"]],
    "passes": [["passes"]],
    "demo": [["demo", "-o", "demo"]],
}
"""Later calls read files that earlier ones write, so the order matters."""

MANIFEST = """
models:
  digits: {source: digits.onnx, limits: {cosine: 0.99}}
  far: {source: digits.onnx, quantize: int8, calibration: calibration.npz, evaluation: labeled.npz,
        preprocess: "color=GRAY,scale=0.0625", limits: {size: 1KB, top1_drop: 0.5, cosine: 1}}
  damaged: {source: damaged.onnx}
"""

SWISH = """
from dataclasses import dataclass

import numpy as np
import tpuconvert as tc


@tc.register_op("json_swish")
@dataclass(frozen=True)
class Swish(tc.Op):
    '''y = x / (1 + exp(-x)).'''

    inputs = (tc.Operand("x"),)

    @classmethod
    def examples(cls):
        return [(cls(), [(1, 4)])]

    def infer(self, x):
        return (x,)

    def reference(self, x):
        return (x / (1 + np.exp(-x)),)
"""


def prepare(digits: Path) -> None:
    """Write the files that the calls read to the working folder."""
    from PIL import Image

    for name in ("digits.onnx", "digits.tflite", "digits.prototxt", "calibration.npz"):
        shutil.copy(digits / name, ".")
    with np.load(digits / "digits.npz") as archive:
        chosen = archive["test"]
        images, labels = archive["images"][chosen][:20], archive["labels"][chosen][:20]
    np.savez("labeled.npz", images=images, labels=labels)
    Image.fromarray(images[0]).save("one.png")
    tc.convert(decoder()).save("decoder.tpum")
    unsupported = onnx.load("digits.onnx")
    unsupported.graph.node[-1].op_type = "NoSuchOperator"
    onnx.save(unsupported, "unsupported.onnx")
    Path("damaged.onnx").write_bytes(b"<html>")
    Path("manifest.yaml").write_text(MANIFEST)
    Path("swish.py").write_text(SWISH)


def strict(part: Any) -> Any:
    """The schema with additional properties forbidden. The published schema allows them for later versions."""
    if isinstance(part, list):
        return [strict(each) for each in part]
    if not isinstance(part, dict):
        return part
    closed = {"additionalProperties": False} if isinstance(part.get("properties"), dict) and "type" in part else {}
    return {**closed, **{key: strict(each) for key, each in part.items()}}
