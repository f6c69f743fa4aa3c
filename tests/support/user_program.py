"""Program of a user: every step from a source to a report. ``test_user_program.py`` type-checks and runs it.

Run it with a folder that contains ``digits.onnx``, ``calibration.npz`` and ``labeled.npz``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx

import tpuconvert as tc

PIXELS = "color=GRAY,scale=0.0625"


def quantize(folder: Path) -> tc.Model:
    """Measure ranges once, and quantize with them in two ways."""
    source = folder / "digits.onnx"
    checked: tc.Check = tc.check(source, chip="bm1686", target="onnx")
    print(checked, checked.nodes == sum(checked.operators.values()), checked.chip is tc.Chip.BM1686)
    ranges: tc.MeasuredRanges = tc.calibrate(
        source, calibration=folder / "calibration.npz", preprocess=PIXELS, output=folder / "ranges.json"
    )
    rounded = tc.quantize(
        source, ranges=ranges, preprocess=PIXELS, quantization=tc.Quantization(keep_float=["op:softmax"])
    )
    print(repr(rounded))
    return tc.quantize(
        source,
        ranges=folder / "ranges.json",
        calibration=folder / "calibration.npz",
        preprocess=PIXELS,
        quantization=tc.Quantization(effort="low"),
    )


def compare(folder: Path, model: tc.Model) -> None:
    """Compare with the source, find the node with the largest error, and write a report."""
    source = folder / "digits.onnx"
    verification: tc.Verification = tc.verify(model, source, data=folder / "calibration.npz", oracle="none")
    verification.check(min_cosine=0.95, limits=["conv*:cosine=0.5"])
    try:
        verification.check(min_sqnr=200.0)
    except tc.ThresholdError as error:
        print(f"{error.id}: {error.message}")
    attribution: tc.Attribution = tc.attribute(model, source, data=folder / "calibration.npz", samples=4)
    print(attribution.nodes[0].name, attribution.nodes[0].isolated.sqnr)
    evaluation: tc.Evaluation = tc.evaluate(model, folder / "labeled.npz", metrics="top1")
    share: float = evaluation.values["top1"]
    evaluation.check({"top1": share})
    page: Path = tc.report(
        model, folder / "report.html", verification=verification, attribution=attribution, evaluation=evaluation
    )
    print(page.stat().st_size > 0, sorted(verification.to_dict())[:2])


def run(model: tc.Model) -> npt.NDArray[np.float32]:
    """Run the model by name, in order, on a batch, and measure it."""
    with tc.Session(model, threads=1) as session:
        print(session)
        batch = np.zeros((4, 1, 8, 8), np.float32)
        by_name = session.run({"image": batch})
        in_order = session.run(batch)
        images = session.run_images(np.zeros((3, 8, 8), np.uint8))
        assert by_name["probability"].tobytes() == in_order["probability"].tobytes()
        scores: npt.NDArray[np.float32] = images["probability"].astype(np.float32)
    speed: tc.Benchmark = tc.bench(model, runs=2, warmup=0, profile=True)
    print(speed.median > 0, [kernel.kernel for kernel in speed.kernels][:1])
    return scores


def main(folder: Path) -> None:
    """Run all steps."""
    model = quantize(folder)
    model.save(folder / "digits.tpum")
    print(tc.load(folder / "digits.tpum"), tc.inspect(folder / "digits.tpum").nodes)
    print(
        tc.reproduce(
            folder / "digits.tpum",
            folder / "digits.onnx",
            calibration=folder / "calibration.npz",
            ranges=folder / "ranges.json",
        ).is_same
    )
    in_memory: onnx.ModelProto = onnx.load(folder / "digits.onnx")
    assert tc.convert(in_memory).outputs == tc.convert((folder / "digits.onnx").read_bytes()).outputs
    compare(folder, model)
    print(run(model).shape)
    exported: tc.Export = tc.export(model, folder / "digits_int8.onnx", to="onnx")
    print(exported.path.name, tc.ops(chip="bm1684").names[:1], tc.passes().names[:1])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
