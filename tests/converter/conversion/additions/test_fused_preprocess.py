"""Preprocessing as nodes of the model: the results equal preprocessing on the host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

import tpuconvert as tc
from tests.support.onnx.models import model, one, ramp, save_model
from tpuconvert.conversion.additions.fused_preprocess import source_feeds
from tpuconvert.conversion.options.options import group_options
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.graph.graph import Port
from tpuconvert.schema.types import Array

RULE = "color={color},mean=104,117,123,scale=0.5,0.25,2,layout={layout}"


def pixels(count: int, height: int = 6, width: int = 8) -> Array:
    return np.random.default_rng(0).integers(0, 256, (count, height, width, 3), np.uint8)


def network(folder: Path, layout: str, pads: int = 0) -> str:
    """Write an ONNX file of a 3x3 convolution of an image of 6 x 8 pixels, and return its path."""
    draw = np.random.default_rng(1)
    shape = (1, 3, 6, 8) if layout == "NCHW" else (1, 6, 8, 3)
    weights = draw.standard_normal((4, 3, 3, 3)).astype(np.float32)
    nodes = [one("Conv", "planes", "w", outputs=("y",), pads=[pads] * 4)]
    if layout == "NHWC":
        nodes.insert(0, one("Transpose", "image", outputs=("planes",), perm=[0, 3, 1, 2]))
    else:
        nodes.insert(0, one("Identity", "image", outputs=("planes",)))
    proto = model(nodes, {"image": ramp(*shape)}, ["y"], {"w": weights})
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT  # onnxruntime needs the type
    return str(save_model(proto, folder))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("color", ["RGB", "BGR"])
@pytest.mark.parametrize("order", ["rgb", "bgr"])
def test_normalized_tensor_is_that_of_the_host(layout: str, color: str, order: str) -> None:
    rule = Preprocess.of(RULE.format(color=color, layout=layout))
    port = Port("image", "float32", (2, 3, 6, 8) if layout == "NCHW" else (2, 6, 8, 3))
    images = pixels(2)
    fused = Preprocess.of(f"{rule},fuse={order}")
    [found] = source_feeds(port, [{"image_pixels": fused.apply(images)}], fused)
    assert np.array_equal(found["image"], rule.apply(images))  # the same arithmetic, therefore no tolerance


@pytest.mark.parametrize("pads", [0, 1])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("order", ["rgb", "bgr"])
def test_results_are_those_of_a_model_without(tmp_path: Path, layout: str, order: str, pads: int) -> None:
    source, rule = network(tmp_path, layout, pads), RULE.format(color="BGR", layout=layout)
    images = pixels(3)
    plain = tc.convert(source, preprocess=rule)
    fused = tc.convert(source, preprocess=rule, source_options=tc.SourceOptions(fuse_preprocess=order))
    assert fused.inputs == [tc.TensorInfo("image_pixels", "uint8", (1, 6, 8, 3))]
    fused.save(tmp_path / "fused.tpum")
    with tc.Session(plain) as host, tc.Session(tmp_path / "fused.tpum") as session:
        wanted, found = host.run_images(images)["y"], session.run_images(images)["y"]
        direct = session.run(images[:1] if order == "rgb" else images[:1, ..., ::-1])["y"]
    assert np.allclose(found, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())  # mean and scale are folded
    assert np.array_equal(direct, found[:1])


@pytest.mark.parametrize("order", ["nv12", "i420"])
@pytest.mark.parametrize("color", ["RGB", "BGR"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_planes_of_a_camera_give_the_normalized_pixels_of_opencv(layout: str, color: str, order: str) -> None:
    cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
    rule = Preprocess.of(RULE.format(color=color, layout=layout))
    port = Port("image", "float32", (2, 3, 6, 8) if layout == "NCHW" else (2, 6, 8, 3))
    planes = np.random.default_rng(3).integers(0, 256, (2, 9, 8), np.uint8)
    [found] = source_feeds(port, [{"image_pixels": planes}], Preprocess.of(f"{rule},fuse={order}"))
    code = getattr(cv2, f"COLOR_YUV2RGB_{order.upper()}")
    images = np.stack([cv2.cvtColor(each, code) for each in planes])
    assert np.array_equal(found["image"], rule.apply(images))


@pytest.mark.parametrize("order", ["nv12", "i420"])
@pytest.mark.parametrize("quantize", [None, "int8"])
def test_models_take_planes_and_images(tmp_path: Path, order: str, quantize: str | None) -> None:
    """Images become planes, whose colors have half the resolution; images of one color are the same in both."""
    source, rule = network(tmp_path, "NCHW"), RULE.format(color="BGR", layout="NCHW")
    images = np.broadcast_to(np.random.default_rng(5).integers(0, 256, (8, 1, 1, 3), np.uint8), (8, 6, 8, 3))
    settings: dict[str, Any] = {"preprocess": rule, "quantize": quantize}
    if quantize is not None:
        settings["calibration"] = images
    plain = tc.convert(source, **group_options(**settings))
    fused = tc.convert(source, **group_options(fuse_preprocess=order, **settings))
    assert fused.inputs == [tc.TensorInfo("image_pixels", "uint8", (1, 9, 8))]
    fused.save(tmp_path / "fused.tpum")
    prepared = Preprocess.of(f"{rule},fuse={order},size=6x8").apply(images)
    with tc.Session(plain) as host, tc.Session(tmp_path / "fused.tpum") as session:
        wanted, found = host.run_images(images)["y"], session.run_images(images)["y"]
        direct = np.concatenate([session.run(planes[None])["y"] for planes in prepared])
    # A step of a pixel in the conversion to planes and back, times the weights; and a step of the INT8 output.
    assert np.abs(found - wanted).max() <= (0.02 if quantize is None else 0.05) * np.abs(wanted).max()
    assert np.array_equal(direct, found)
    with tc.Session(fused, backend="reference") as session:
        reference = np.concatenate([session.run(planes[None])["y"] for planes in prepared])
    assert np.allclose(reference, found, rtol=1e-5, atol=1e-4)  # sums in another order


@pytest.mark.parametrize(
    "resize", ["opencv-linear", "opencv-area", "opencv-cubic", "opencv-lanczos4", "opencv-nearest"]
)
@pytest.mark.parametrize("fit", ["stretch", "crop", "letterbox", "letterbox-top-left"])
@pytest.mark.parametrize("order", ["rgb", "bgr", "nv12", "i420"])
def test_images_of_a_camera_are_fitted_by_the_model(order: str, fit: str, resize: str) -> None:
    """The normalized tensor equals the one of the host for the same pixels."""
    cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
    rule = Preprocess.of(f"{RULE.format(color='RGB', layout='NCHW')},size=24x32,fit={fit},resize={resize},pad=7")
    fused = Preprocess.of(f"{rule},camera=36x90,fuse={order}")
    port = Port("image", "float32", (1, 3, 24, 32))
    images = np.random.default_rng(3).integers(0, 256, (1, 36, 90, 3), np.uint8)
    x = fused.apply(images)
    assert x.shape == ((1, 36, 90, 3) if order in ("rgb", "bgr") else (1, 54, 90))
    [found] = source_feeds(port, [{"image_pixels": x}], fused)
    if order in ("nv12", "i420"):
        images = cv2.cvtColor(x[0], getattr(cv2, f"COLOR_YUV2RGB_{order.upper()}"))[None]
    assert np.array_equal(found["image"], rule.apply(images))


@pytest.mark.parametrize("quantize", [None, "int8"])
def test_a_model_takes_images_of_a_camera(tmp_path: Path, quantize: str | None) -> None:
    rule = "color=RGB,mean=104,scale=0.02,size=6x8,fit=letterbox,resize=opencv-linear,camera=10x20"
    images = np.random.default_rng(0).integers(0, 256, (6, 10, 20, 3), np.uint8)
    settings: dict[str, Any] = {} if quantize is None else {"quantize": quantize, "calibration": images}
    source = network(tmp_path, "NCHW", 1)
    model = tc.convert(source, preprocess=rule, **group_options(fuse_preprocess="bgr", **settings))
    assert model.inputs == [tc.TensorInfo("image_pixels", "uint8", (1, 10, 20, 3))]
    model.save(tmp_path / "m.tpum")
    plain = tc.convert(source, preprocess=rule.replace(",camera=10x20", ""), **group_options(**settings))
    with tc.Session(tmp_path / "m.tpum") as session, tc.Session(plain) as host:
        found, wanted = session.run_images(images)["y"], host.run_images(images)["y"]
        direct = session.run(np.ascontiguousarray(images[:1, ..., ::-1]))["y"]
    if quantize is None:
        assert np.allclose(found, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())  # the scale is folded
    else:
        # The mean is folded into the bias or not, so that ranges differ by some steps of INT8.
        assert np.abs(found - wanted).max() < 0.05 * np.abs(wanted).max()
    assert np.array_equal(direct, found[:1])
    assert tc.reproduce(tmp_path / "m.tpum", source, **({"calibration": images} if quantize else {})).is_same


@pytest.mark.parametrize("fit", ["stretch", "crop", "letterbox", "letterbox-top-left"])
def test_regions_of_camera_images_are_those_of_the_image(fit: str) -> None:
    plain = Preprocess.of(f"size=24x32,fit={fit},resize=opencv-linear")
    camera = Preprocess.of(f"{plain},camera=36x90,fuse=rgb")
    assert camera.region(90, 36) == plain.region(90, 36)
    assert np.allclose(camera.region(180, 72), np.multiply(plain.region(90, 36), 2))


@pytest.mark.parametrize("order", ["rgb", "bgr", "nv12"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_mean_and_scale_are_folded_into_the_first_layer(tmp_path: Path, layout: str, order: str) -> None:
    rule = RULE.format(color="BGR", layout=layout)
    for pads, left in ((0, set()), (1, {"sub"})):
        model = tc.convert(
            network(tmp_path, layout, pads), preprocess=rule, source_options=tc.SourceOptions(fuse_preprocess=order)
        )
        names = {node.op.name for node in model.graph.nodes}
        assert names - {"host_yuv420_to_rgb", "cast", "permute", "index_select", "conv"} == left


def test_planes_are_calibration_samples(tmp_path: Path) -> None:
    source, rule = network(tmp_path, "NCHW"), RULE.format(color="RGB", layout="NCHW")
    planes = np.random.default_rng(0).integers(0, 256, (4, 9, 8), np.uint8)
    images = np.random.default_rng(0).integers(0, 256, (4, 6, 8, 3), np.uint8)
    for samples in (planes, images):
        found = tc.convert(
            source,
            preprocess=rule,
            source_options=tc.SourceOptions(fuse_preprocess="nv12"),
            quantize="int8",
            calibration=samples,
        )
        assert found.quantize == "int8"


def test_gray_images(tmp_path: Path) -> None:
    rule, examples = "color=GRAY,scale=0.0625", Path("examples/digits")
    with np.load(examples / "digits.npz") as archive:
        images = archive["images"][archive["test"]][:50]
    settings: dict[str, Any] = {"quantize": "int8", "calibration": examples / "calibration.npz", "preprocess": rule}
    plain = tc.convert(examples / "digits.onnx", **group_options(**settings))
    fused = tc.convert(examples / "digits.onnx", **group_options(fuse_preprocess="gray", **settings))
    assert fused.inputs[0].dtype == "uint8"
    with tc.Session(plain) as host, tc.Session(fused) as session:
        wanted, found = (each.run_images(images)["probability"] for each in (host, session))
    assert (wanted.argmax(1) == found.argmax(1)).all()
    assert np.abs(found - wanted).max() < 0.05


def test_verification_feeds_the_engine_with_normalized_images(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    source = network(tmp_path, "NCHW", 1)
    fused = tc.convert(
        source,
        preprocess=RULE.format(color="BGR", layout="NCHW"),
        source_options=tc.SourceOptions(fuse_preprocess="rgb"),
    )
    found = tc.verify(fused, source)
    assert found.opinion is not None
    assert not found.opinion.problem
    assert found.opinion.tensors
    found.check()


def test_stored_options_read_the_source_in_the_same_way(tmp_path: Path) -> None:
    source = network(tmp_path, "NCHW")
    fused = tc.convert(
        source,
        preprocess=RULE.format(color="BGR", layout="NCHW"),
        source_options=tc.SourceOptions(fuse_preprocess="rgb"),
    )
    fused.save(tmp_path / "fused.tpum")
    assert not tc.diff(source, tmp_path / "fused.tpum").changes
    assert tc.reproduce(tmp_path / "fused.tpum", source).is_same


def test_metadata_of_the_source_state_the_preprocessing(tmp_path: Path) -> None:
    """The key ``fuse`` of the preprocessing and the option mean the same."""
    source = network(tmp_path, "NCHW")
    rule = RULE.format(color="RGB", layout="NCHW")
    by_key = tc.convert(source, preprocess=f"{rule},fuse=bgr")
    by_option = tc.convert(source, preprocess=rule, source_options=tc.SourceOptions(fuse_preprocess="bgr"))
    assert by_key.preprocess == by_option.preprocess
    assert by_key.inputs == by_option.inputs


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"fuse_preprocess": "rgb"}, "fuse_preprocess=rgb without preprocessing"),
        ({"fuse_preprocess": "yuv"}, "fuse_preprocess is 'yuv'"),
        ({"fuse_preprocess": "gray", "preprocess": "color=RGB"}, "fuse=gray with color=RGB"),
        ({"fuse_preprocess": "nv12", "preprocess": "color=GRAY"}, "fuse=nv12 with color=GRAY"),
        ({"preprocess": "camera=10x20,size=6x8,resize=opencv-linear"}, "camera without fuse_preprocess"),
        ({"fuse_preprocess": "rgb", "preprocess": "camera=10x20,resize=opencv-linear"}, "and without size"),
        ({"fuse_preprocess": "rgb", "preprocess": "camera=10x20,size=6x8"}, "camera with resize=pillow-bilinear"),
        ({"fuse_preprocess": "rgb", "preprocess": "fuse=bgr"}, "the preprocessing has fuse=bgr"),
        ({"fuse_preprocess": "rgb", "preprocess": "layout=NHWC"}, "has 8 channels in NHWC"),
    ],
)
def test_wrong_options_are_named(tmp_path: Path, options: dict[str, str], complaint: str) -> None:
    with pytest.raises(tc.UsageError, match=complaint):
        tc.convert(network(tmp_path, "NCHW"), **group_options(**options))


def test_models_without_one_float_image_are_refused(tmp_path: Path) -> None:
    two = model([one("Add", "a", "b", outputs=("y",))], {"a": ramp(1, 3, 4, 4), "b": ramp(1, 3, 4, 4)}, ["y"])
    with pytest.raises(tc.UsageError, match="has 2 inputs"):
        tc.convert(
            save_model(two, tmp_path), preprocess="color=RGB", source_options=tc.SourceOptions(fuse_preprocess="rgb")
        )
    whole = model([one("Add", "x", "x", outputs=("y",))], {"x": ramp(1, 3, 4, 4).astype(np.int32)}, ["y"])
    with pytest.raises(tc.UsageError, match="holds int32, expected floats"):
        tc.convert(
            save_model(whole, tmp_path), preprocess="color=RGB", source_options=tc.SourceOptions(fuse_preprocess="rgb")
        )


def test_planes_of_odd_images_are_refused(tmp_path: Path) -> None:
    odd = model([one("Relu", "x", outputs=("y",))], {"x": ramp(1, 3, 5, 4)}, ["y"])
    with pytest.raises(tc.UsageError, match="5 x 4 pixels, expected an even height and width"):
        tc.convert(
            save_model(odd, tmp_path), preprocess="color=RGB", source_options=tc.SourceOptions(fuse_preprocess="nv12")
        )
