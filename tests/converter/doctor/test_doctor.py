"""The doctor: detects wrong preprocessing and useless samples, without false alarms on correct ones."""

from pathlib import Path

import numpy as np
import pytest

import tpuconvert as tc
from tpuconvert.__main__ import main
from tpuconvert.conversion.options.options import group_options
from tpuconvert.doctor.trial import binomial_tail, paired_test, probabilities, sign_test
from tpuconvert.doctor.variants import TrialSamples
from tpuconvert.samples.calibration_data import load_feeds
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.samples.sample_statistics import SampleStatistics
from tpuconvert.schema.graph.graph import Port
from tpuconvert.schema.types import DType, QuantParams

RIGHT = "color=GRAY,scale=0.0625"
"""Pixels of the bundled digits are 0 to 16, as its README states."""


@pytest.fixture
def digits(repository: Path) -> Path:
    return repository / "examples" / "digits"


@pytest.fixture
def labels_path(digits: Path, tmp_path: Path) -> Path:
    with np.load(digits / "digits.npz") as archive:
        chosen = archive["test"][:120]
        np.savez(tmp_path / "labeled.npz", images=archive["images"][chosen], labels=archive["labels"][chosen])
    return tmp_path / "labeled.npz"


def examine(*given, **options):
    """Use one thread: the network is small, and the machine may be busy."""
    method = {name: options.pop(name) for name in ("calibration_method",) if name in options}
    return tc.doctor(*given, threads=1, **method, **group_options(**options))


def ids(found) -> list[str]:
    return [finding.id for finding in found.findings]


@pytest.mark.parametrize("name", ["digits.onnx", "digits.tflite"])
def test_right_preprocessing_gives_no_warning(name, digits, labels_path):
    layout = ",layout=NHWC" if name.endswith("tflite") else ""
    assert examine(digits / name, labels_path, preprocess=RIGHT + layout).findings == []
    assert examine(digits / name, digits / "calibration.npz", preprocess=RIGHT + layout).findings == []


@pytest.mark.parametrize(
    ("preprocess", "advised"),
    [
        ("color=GRAY", "mean=0,scale=0.0625"),
        ("color=GRAY,scale=16", "mean=0,scale=0.0625"),
        ("color=GRAY,scale=0.000244", "mean=0,scale=0.0625"),
        ("color=GRAY,mean=16,scale=-0.0625", "mean=0,scale=0.0625"),  # 16 - (16 - pixel) = pixel
    ],
)
def test_the_variant_that_classifies_best_is_advised(preprocess, advised, digits, labels_path):
    found = examine(digits / "digits.onnx", labels_path, preprocess=preprocess)
    (warning,) = (finding for finding in found.findings if finding.id == "better-variant")
    assert advised in warning.advice
    rule = warning.advice.removeprefix("--preprocess ")
    assert ids(examine(digits / "digits.onnx", labels_path, preprocess=rule)) == []


def test_transposed_arrays_are_found(digits, labels_path):
    with np.load(labels_path) as archive:
        images, labels = archive["images"].astype(np.float32) / 16, archive["labels"]
    turned = images.transpose(0, 2, 1)[:, np.newaxis]
    found = examine(digits / "digits.onnx", turned, labels=labels)
    (warning,) = (finding for finding in found.findings if finding.id == "better-variant")
    assert "height and width exchanged" in warning.seen
    assert examine(digits / "digits.onnx", images[:, np.newaxis], labels=labels).findings == []


@pytest.mark.parametrize(("scale", "word"), [(16, "smaller"), (0.0625 / 255, "larger")])
def test_a_conversion_warns_of_a_wrong_scale_by_batch_norm(scale, word, digits):
    model = tc.convert(
        digits / "digits.onnx",
        quantize="int8",
        calibration=digits / "calibration.npz",
        preprocess=f"color=GRAY,scale={scale}",
    )
    notes = [note for note in model.notes if note.kind == "preprocessing"]
    (note,) = (note for note in notes if "batch norm 'conv1/bn'" in note.message)
    assert f"a {word} --preprocess scale" in note.message


@pytest.mark.parametrize("factor", [65536, 1 / 65536])
def test_magnitudes_that_no_normalization_gives_are_found(factor):
    (warning,) = statistics([factor * feed for feed in noise(10)], PORT)
    assert warning.id == "implausible-range"


def test_a_conversion_with_right_preprocessing_has_no_warning(digits):
    for name, layout in (("digits.onnx", "NCHW"), ("digits.tflite", "NHWC")):
        rule = f"{RIGHT},layout={layout}"
        model = tc.convert(digits / name, quantize="int8", calibration=digits / "calibration.npz", preprocess=rule)
        assert [note for note in model.notes if note.kind == "preprocessing"] == []


def test_folded_batch_norm_is_judged_by_biases(digits):
    """The TFLite file contains no batch norm; its statistics were folded into the biases."""
    with np.load(digits / "calibration.npz") as archive:
        tiny = archive["images"][..., np.newaxis].astype(np.float32) / 16 / 65536
    found = examine(digits / "digits.tflite", tiny)
    assert "small-input" in ids(found)


def statistics(feeds, port, names=()):
    found = SampleStatistics([port], names)
    for feed in feeds:
        found.add({port.name: feed})
    return found.findings()


PORT = Port("x", "float32", (1, 3, 4, 4))


def noise(count):
    return list(np.random.default_rng(1).normal(size=(count, 1, 3, 4, 4)).astype(np.float32))


def test_samples_that_differ_give_no_warning():
    assert statistics(noise(20), PORT) == []


def test_equal_samples_are_named():
    feeds = noise(10)
    feeds[7] = feeds[2].copy()
    (warning,) = statistics(feeds, PORT, [f"{index}.jpg" for index in range(10)])
    assert warning.id == "equal-samples"
    assert "7.jpg equals 2.jpg" in warning.seen


def test_constant_samples_are_named():
    feeds = noise(10)
    feeds[3] = np.zeros_like(feeds[3])
    (warning,) = statistics(feeds, PORT)
    assert warning.id == "constant-samples"
    assert "sample 3" in warning.seen


def test_a_dead_channel_is_named():
    feeds = noise(10)
    for feed in feeds:
        feed[:, 1] = 0.5
    (warning,) = statistics(feeds, PORT)
    assert warning.id == "dead-channel"
    assert warning.seen.startswith("channel 1 of")


@pytest.mark.parametrize(("dtype", "expected"), [("int32", []), ("int64", []), ("float32", ["dead-elements"])])
def test_padding_of_texts_is_not_dead(dtype, expected):
    tokens = np.random.default_rng(4).integers(4, 49, (20, 1, 64)).astype(dtype)
    tokens[..., 26:] = 0
    assert [warning.id for warning in statistics(list(tokens), Port("x", dtype, (1, 64)))] == expected
    assert [warning.id for warning in statistics([tokens[0]] * 2, Port("x", dtype, (1, 64)))] == [
        "equal-samples",
        "dead-input",
    ]


def test_an_input_that_never_changes_is_dead():
    (first,) = noise(1)
    warnings = statistics([first] * 5, PORT)
    assert "dead-input" in [warning.id for warning in warnings]


@pytest.mark.parametrize(("shape", "wrong"), [((1, 3, 8, 8), "last"), ((1, 8, 8, 3), "first")])
def test_reshaped_images_are_among_the_variants(shape, wrong):
    """Pixels in one layout, interpreted as the other. Exactly one variant restores them."""
    port = Port("x", "float32", shape)
    images = np.random.default_rng(2).normal(size=(4, 8, 8, 3)).astype(np.float32)
    right = images.transpose(0, 3, 1, 2) if wrong == "last" else images
    memory = images if wrong == "last" else np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    source = load_feeds(memory.reshape(4, *shape[1:]), [port])
    variants = TrialSamples(source, port, None).variants()
    assert any(np.array_equal(variant.make(np.arange(4)), right) for variant in variants)


@pytest.mark.parametrize("color", ["RGB", "BGR"])
def test_reshaped_pixels_are_restored_before_mean_and_color_order(color):
    """Pixels [C, H, W] read as [H, W, C]: the mean and the exchange of R and B were applied to wrong channels."""
    port = Port("x", "float32", (1, 3, 8, 8))
    images = np.random.default_rng(3).integers(0, 256, (4, 8, 8, 3), np.uint8)
    rule = Preprocess(color=color, mean=(104.0, 117.0, 123.0), scale=(0.5,))
    ordered = images[..., ::-1] if color == "BGR" else images
    right = ((ordered - np.float32([104, 117, 123])) * np.float32(0.5)).transpose(0, 3, 1, 2)
    mixed = np.ascontiguousarray(images.transpose(0, 3, 1, 2)).reshape(images.shape)
    variants = TrialSamples(load_feeds(mixed, [port], rule), port, rule).variants()
    assert any(np.array_equal(variant.make(np.arange(4)), right) for variant in variants)


def test_saturated_integers_are_found():
    """Pixels 0..255 for an integer input that represents 0..1: only the two limits of the type occur."""
    port = Port("x", "int8", (1, 3, 4, 4), QuantParams.per_tensor(1 / 255, -128, DType.INT8))
    pixels = [128 * feed for feed in noise(10)]
    (warning,) = statistics([port.quant.quantize(feed) for feed in pixels], port)
    assert warning.id == "saturated-input"
    assert "from 0 to 1" in warning.expected


def test_batches_are_looked_at_sample_by_sample():
    batch = np.concatenate(noise(8))
    batch[5] = batch[1]
    (warning,) = statistics([batch], Port("x", "float32", (8, 3, 4, 4)))
    assert "sample 5 equals sample 1" in warning.seen


def test_a_sample_that_sets_ranges_alone_is_named(digits):
    with np.load(digits / "calibration.npz") as archive:
        images = archive["images"].astype(np.float32)[:, np.newaxis] / 16
    images[11] *= 50
    found = examine(digits / "digits.onnx", images)
    (warning,) = (finding for finding in found.findings if finding.id == "lone-sample")
    assert warning.seen.startswith("sample 11 alone")
    assert "'image'" in warning.seen


def test_thresholds_of_repeated_samples_settle_at_once(digits):
    """Eight samples that repeat: further samples do not change the thresholds."""
    with np.load(digits / "calibration.npz") as archive:
        images = np.tile(archive["images"][:8].astype(np.float32)[:, np.newaxis] / 16, (8, 1, 1, 1))
    found = examine(digits / "digits.onnx", images, calibration_method="minmax")
    assert found.calibration is not None
    assert found.calibration.enough == 8
    growing = images * np.linspace(0.1, 1, len(images), dtype=np.float32)[:, np.newaxis, np.newaxis, np.newaxis]
    found = examine(digits / "digits.onnx", growing, calibration_method="minmax")
    assert found.calibration is not None
    assert found.calibration.enough is None


def test_of_many_samples_some_are_compared_with_their_labels(digits, labels_path):
    """1200 samples sorted by class: every third sample is evaluated, together with its label."""
    with np.load(labels_path) as archive:
        images, labels = archive["images"], archive["labels"]
    order = np.argsort(labels, kind="stable").repeat(10)
    found = examine(digits / "digits.onnx", images[order], labels=labels[order], preprocess=RIGHT)
    assert found.trial is not None
    assert found.trial.current.samples == 400
    assert found.trial.current.right is not None
    assert found.trial.current.right >= 380


def test_labels_in_a_file_of_their_own(digits, labels_path, tmp_path):
    with np.load(labels_path) as archive:
        np.save(tmp_path / "images.npy", archive["images"])
        (tmp_path / "labels.txt").write_text("\n".join(map(str, archive["labels"])))
    found = examine(digits / "digits.onnx", tmp_path / "images.npy", labels=tmp_path / "labels.txt", preprocess=RIGHT)
    assert found.trial is not None
    assert found.trial.current.right is not None
    assert found.trial.current.right >= 114


def test_labels_that_are_shifted_by_one_are_found(digits, labels_path):
    with np.load(labels_path) as archive:
        images, labels = archive["images"], archive["labels"].astype(np.int64)
    kept = labels < 9
    found = examine(digits / "digits.onnx", images[kept], labels=labels[kept] + 1, preprocess=RIGHT)
    assert "shifted-labels" in ids(found)


def test_the_number_of_labels_is_that_of_the_samples(digits, labels_path):
    with np.load(labels_path) as archive, pytest.raises(tc.UsageError, match="5 labels for 120 samples"):
        examine(digits / "digits.onnx", archive["images"], labels=[1, 2, 3, 4, 5], preprocess=RIGHT)


def test_strict_turns_warnings_into_exit_code_5(digits, labels_path, capsys):
    call = ["doctor", str(digits / "digits.onnx"), "--threads", "1", "--data", str(labels_path), "--preprocess"]
    assert main([*call, "color=GRAY,scale=16"]) == 0
    assert "warning[better-variant]" in capsys.readouterr().out
    assert main([*call, "color=GRAY,scale=16", "--strict"]) == 5
    assert main([*call, RIGHT, "--strict"]) == 0


def test_calibrate_warns(digits, tmp_path, capsys):
    call = ["calibrate", str(digits / "digits.onnx"), "--calibration", str(digits / "calibration.npz")]
    assert main([*call, "-o", str(tmp_path / "r.json"), "--preprocess", "color=GRAY,scale=16"]) == 0
    assert "batch norm 'conv1/bn'" in capsys.readouterr().err


def test_statistics_against_published_values():
    """McNemar's test: 10 against 2 gives 79 / 4096; the normal distribution has 2.5 % beyond 1.96."""
    assert sign_test(10, 2) == pytest.approx(79 / 4096)
    assert binomial_tail(3, 2, 0.5) == pytest.approx(0.5)
    assert binomial_tail(2, 1, 0.1) == pytest.approx(0.19)
    d = np.array([1.0, -1.0] * 50)
    d += 1.96 * d.std(ddof=1) / 10
    assert paired_test(d) == pytest.approx(0.025, abs=2e-4)


def test_scores_become_probabilities():
    given = np.array([[0.25, 0.75], [1.0, 0.0]])
    assert probabilities(given) == pytest.approx(given, abs=1e-6)
    logits = np.array([[0.0, np.log(3.0)], [np.nan, 5.0]])
    assert probabilities(logits) == pytest.approx(np.array([[0.25, 0.75], [0.0, 1.0]]))
