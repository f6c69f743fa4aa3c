"""The three files of the example, converted and run: the outputs equal the outputs of the source frameworks."""

import numpy as np
import pytest
from digits_data import FOLDER, load_part

import tpuconvert as tc

SOURCES = {
    "onnxruntime": ("digits.onnx", None, (1, 1, 8, 8)),
    "litert": ("digits.tflite", None, (1, 8, 8, 1)),
    "opencv": ("digits.prototxt", "digits.caffemodel", (1, 1, 8, 8)),
}
TOLERANCE = 1e-5  # of a probability: float32 sums in a different order


def convert(engine):
    source, weights, _ = SOURCES[engine]
    return tc.convert(FOLDER / source, weights=None if weights is None else FOLDER / weights)


@pytest.mark.parametrize("engine", SOURCES)
def test_converted_file_gives_the_engines_outputs(engine, tmp_path):
    file, shape = tmp_path / "digits.tpum", SOURCES[engine][2]
    convert(engine).save(file)
    with np.load(FOLDER / "expected.npz") as archive:
        images, expected = load_part("test").images[archive["chosen"]], archive[engine]
    with tc.Session(tc.load(file)) as session:
        # with one channel, NCHW and NHWC have the same element order
        outputs = [session.run({"image": image.reshape(shape)})["probability"] for image in images]
    np.testing.assert_allclose(np.concatenate(outputs), expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("engine", SOURCES)
def test_names_shapes_and_layout_stay_those_of_the_source(engine):
    with tc.Session(convert(engine)) as session:
        assert [(x.name, tuple(x.shape)) for x in session.inputs] == [("image", SOURCES[engine][2])]
        assert [(y.name, tuple(y.shape)) for y in session.outputs] == [("probability", (1, 10))]
