"""Writes ``expected.npz``: outputs that three other engines compute with the three files, for 16 test images.

The engines are not needed to use or to test tpuconvert. Run this in a separate environment:

    pip install numpy onnxruntime==1.31.1 ai-edge-litert==2.3.0 opencv-python-headless==4.12.0.88
    python make_expected.py
"""

from typing import Any

import cv2  # type: ignore[import-not-found,unused-ignore]  # only where this script runs
import numpy as np
import onnxruntime  # type: ignore[import-not-found,unused-ignore]  # only where this script runs
from ai_edge_litert.interpreter import Interpreter  # type: ignore[import-not-found,unused-ignore]  # as above
from digits_data import FOLDER, load_part
from digits_network import Array, load_weights, predict

EVERY = 32  # of the 500 test images


def run_onnx(images: Array) -> Array:
    """Runs ``digits.onnx`` with ONNX Runtime."""
    session = onnxruntime.InferenceSession(FOLDER / "digits.onnx", providers=["CPUExecutionProvider"])
    return np.concatenate([session.run(["probability"], {"image": image[None]})[0] for image in images])


def run_tflite(images: Array) -> Array:
    """Runs ``digits.tflite`` with LiteRT; it takes NHWC."""
    interpreter: Any = Interpreter(str(FOLDER / "digits.tflite"))
    interpreter.allocate_tensors()
    x, y = interpreter.get_input_details()[0]["index"], interpreter.get_output_details()[0]["index"]
    outputs = []
    for image in images:
        interpreter.set_tensor(x, image[None].transpose(0, 2, 3, 1))
        interpreter.invoke()
        outputs.append(interpreter.get_tensor(y))
    return np.concatenate(outputs)


def run_caffe(images: Array) -> Array:
    """Runs ``digits.prototxt`` and ``digits.caffemodel`` with OpenCV; its later versions do not read Caffe."""
    dnn: Any = cv2.dnn  # the stubs of OpenCV 5 do not have the function
    network = dnn.readNetFromCaffe(str(FOLDER / "digits.prototxt"), str(FOLDER / "digits.caffemodel"))
    outputs = []
    for image in images:
        network.setInput(image[None], "image")
        outputs.append(network.forward("probability").copy())
    return np.concatenate(outputs)


def main() -> None:
    """Runs the engines, prints the difference of each from the NumPy network and saves their outputs."""
    part = load_part("test")
    chosen = np.arange(0, len(part.images), EVERY)
    images = part.images[chosen]
    outputs = {"onnxruntime": run_onnx(images), "litert": run_tflite(images), "opencv": run_caffe(images)}
    exact = predict(load_weights(), images)
    for engine, y in outputs.items():
        print(f"{engine}: largest difference to the NumPy network {np.abs(y - exact).max():.2g}")
    np.savez(FOLDER / "expected.npz", chosen=chosen.astype(np.uint16), **outputs)  # type: ignore[arg-type,unused-ignore]  # numpy/numpy#22662: the stub takes every keyword for allow_pickle


if __name__ == "__main__":
    main()
