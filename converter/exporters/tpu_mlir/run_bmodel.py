"""Run the compiled program in the vendor's chip simulator and compare it with the expected integers.

A copy of this file is part of every export. It needs no package of tpuconvert.

    PYTHON run_bmodel.py [OUTPUTS.npz [INPUTS.npz]]

PYTHON is the interpreter that has tpu_mlir installed; TPU_MLIR_HOME is the folder of that package. With INPUTS.npz,
arrays by the names of the program's inputs, nothing is compared. Exit code 0: every integer is equal. 1: a tensor
differs. 2: something is missing.
"""

import hashlib
import json
import os
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

FOLDER = Path(__file__).resolve().parent


INEXACT_SHARE, INEXACT_STEPS = 0.01, 32
"""Accepted share and size of differences of integers that follow from floating-point results: a result next to a tie is
rounded to the other integer, and sums after it differ by that step times a weight. On 8 images of a YOLOv8, 17 of 93
million differ, by at most 25."""

ROUNDING_MARGIN = 4
"""Accepted change of a tensor, in changes by the last place of each float that is quantized: ``rounding`` of an output.
A segmentation network changes as much on two chips as by these roundings, 0.003, and a wrong row of it by 0.08."""


def fail(message: str) -> NoReturn:
    """Print a message and exit with code 2."""
    print(f"run_bmodel.py: {message}", file=sys.stderr)
    sys.exit(2)


def read_manifest() -> dict[str, Any]:
    """Read ``export.json``, unless it was changed after the export."""
    path, checksums = FOLDER / "export.json", FOLDER / "checksums.txt"
    try:
        content, lines = path.read_bytes(), checksums.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        fail(f"{error}; export the model again")
    if f"{hashlib.sha256(content).hexdigest()}  {path.name}" not in lines:
        fail(f"{path} was changed after the export; export the model again")
    manifest: dict[str, Any] = json.loads(content)
    return manifest


def read_arrays(path: Path) -> dict[str, Any]:
    """Read the arrays of an .npz file."""
    try:
        with np.load(path) as stored:
            arrays = dict(stored)
    except (OSError, ValueError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        fail(f"{path} cannot be read, expected an .npz file with numbers: {error}")
    return arrays


def start_with_simulator(home: str, chip: str) -> int:
    """Restart this program with the library of the chip's simulator on the library path.

    The runtime loads a library named libcmodel.so. The package contains this file for one chip, and its tools overwrite
    it. A temporary folder with a link of that name selects the library of the right chip.
    """
    library = Path(home) / "lib" / f"libcmodel_{chip}.so"
    if not library.exists():
        fail(f"TPU_MLIR_HOME is '{home}', which has no {library.name}; install tpu_mlir and set the variable")
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(library, f"{folder}/libcmodel.so")
        environment = {**os.environ, "SIMULATOR_FOLDER": folder, "LD_LIBRARY_PATH": folder}
        return os.spawnve(os.P_WAIT, sys.executable, [sys.executable, *sys.argv], environment)


def find_output(results: dict[str, Any], name: str) -> Any:
    """Return the output with this name, to which the compiler may have appended a type.

    An output that the compiler computes together with the operation before it has both names: ``permute_output``.
    """
    if name in results:
        return results[name]
    matches = [key for key in results if key.startswith(f"{name}_") and key[len(name) + 1 :] in SUFFIXES]
    matches = matches or [key for key in results if key.endswith(f"_{name}")]
    return results[matches[0]] if len(matches) == 1 else None


def stack_samples(results: dict[str, list[Any]]) -> dict[str, Any]:
    """Stack the results of all samples along a new first axis. Results of different extents are kept one by one."""
    arrays = {}
    for name, items in results.items():
        if len({item.shape for item in items}) == 1:
            arrays[name] = np.stack(items)
        else:
            arrays.update({f"{name}[{index}]": item for index, item in enumerate(items)})
    return arrays


def write_arrays(path: Any, arrays: dict[str, Any]) -> None:
    """Write an .npz file. Parameters of ``numpy.savez``, such as ``file``, cannot be names of arrays there."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)


def device_array(array: Any, dtype: str) -> Any:
    """Return numbers as the vendor's runtime takes them: BFLOAT16 as bit patterns, which stay if they are given."""
    if dtype != "bfloat16" or array.dtype == np.uint16:
        return array.astype("uint16" if dtype == "bfloat16" else dtype)
    bits = array.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def with_numbers(array: Any, output: dict[str, Any]) -> Any:
    """Convert bit patterns of BFLOAT16 to float32. A missing output stays None."""
    if array is None or output["device_dtype"] != "bfloat16":
        return array
    return (array.astype(np.uint32) << 16).view(np.float32)


def with_type(array: Any, output: dict[str, Any]) -> Any:
    """Convert an output to its type in the model. A missing output stays None."""
    return array if array is None else with_numbers(array, output).astype(output["dtype"])


SUFFIXES = ("f32", "f16", "bf16", "i16", "u16", "i8", "u8", "i32", "si8", "ui8", "si16", "ui16", "si32")


def main() -> None:
    """Run the program on all samples and compare."""
    manifest = read_manifest()
    program = FOLDER / f"{manifest['name']}.bmodel"
    if not program.is_file():
        fail(f"there is no {program.name}; run @COMPILE@ first")
    home = os.environ.get("TPU_MLIR_HOME", "")
    if "SIMULATOR_FOLDER" not in os.environ:
        sys.exit(start_with_simulator(home, manifest["chip"]))
    sys.path.insert(0, f"{home}/python")
    import pyruntime_bm  # type: ignore[import-not-found]  # the vendor's

    model = pyruntime_bm.Model(str(program), 0, "")
    network = model.Net(model.networks[0])
    is_compared = len(sys.argv) < 3
    inputs = read_arrays(FOLDER / "inputs.npz" if is_compared else Path(sys.argv[2]))
    results: dict[str, Any] = {}
    for index in range(manifest["samples"] if is_compared else len(next(iter(inputs.values())))):
        for tensor in network.inputs:
            tensor.data.reshape(-1)[:] = inputs[tensor.name][index].reshape(-1)
        network.forward()
        for tensor in network.outputs:
            results.setdefault(tensor.name, []).append(np.array(tensor.data))
    results = stack_samples(results)
    differing = compare(manifest, read_arrays(FOLDER / "expected.npz"), results) if is_compared else 0
    if len(sys.argv) > 1:
        named = {out["name"]: with_type(find_output(results, out["device_name"]), out) for out in manifest["outputs"]}
        present = {name: array for name, array in named.items() if array is not None}
        write_arrays(sys.argv[1], {**present, "program_digest": manifest["program_digest"]})
    sys.stdout.flush()
    os._exit(1 if differing else 0)  # exit without unloading the runtime, which may crash


def compare(manifest: dict[str, Any], expected: Any, results: dict[str, Any]) -> int:
    """Print one line per returned tensor. Return the number of tensors that differ."""
    differing = 0
    for output in manifest["outputs"]:
        ours, theirs = expected[output["name"]], with_numbers(find_output(results, output["device_name"]), output)
        difference = compare_tensor(manifest, ours, theirs, output)
        differing += not difference.is_accepted
        name = repr(output["name"])[1:-1]  # without control characters
        print(f"{'ok  ' if difference.is_accepted else 'DIFF'}  {name:<40} {ours.dtype!s:<8} {difference.text}")
    return differing


class Difference(NamedTuple):
    """Difference of a tensor from the expected one.

    Attributes:
        is_accepted: True if integers are equal, and if floats, and integers that follow from them, are within the
            tolerance or change no more than roundings change them.
        text: description.
        differing: number of elements that differ.
        largest: largest difference.
        magnitude: largest finite magnitude of the expected elements.
    """

    is_accepted: bool
    text: str
    differing: int
    largest: float
    magnitude: float


def compare_tensor(manifest: dict[str, Any], ours: Any, theirs: Any, output: dict[str, Any]) -> Difference:
    """Compare a tensor with the expected one; None is a missing one. The output is its description in the manifest."""
    if theirs is None or theirs.size != ours.size:
        text = "missing" if theirs is None else f"{theirs.size} values, expected {ours.size}"
        return Difference(False, text, ours.size, float("inf"), 0.0)
    a, b = ours.reshape(-1).astype(np.float64), theirs.reshape(-1).astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):  # infinite minus infinite
        largest = float(np.where(same, 0, np.abs(a - b)).max(initial=0))
    magnitude = float(np.abs(a[np.isfinite(a)]).max(initial=0))
    count = int(np.count_nonzero(~same))
    with np.errstate(invalid="ignore"):
        mean = float(np.sqrt(np.where(same, 0, np.square(a - b)).mean())) if a.size else 0.0
    is_rounding = mean <= ROUNDING_MARGIN * output.get("rounding", 0.0)
    if ours.dtype.kind == "f":
        text = f"floating point, largest difference {largest:.2g} of {magnitude:.2g}"
        is_accepted = largest <= manifest["tolerance"] * magnitude or is_rounding
    elif output["is_exact"]:
        text = "equal" if count == 0 else f"{count} of {a.size} values differ, by at most {largest:g}"
        is_accepted = count == 0
    else:
        text = f"follows from floating point, {count} of {a.size} values differ, by at most {largest:g}"
        is_accepted = (count <= INEXACT_SHARE * a.size and largest <= INEXACT_STEPS) or is_rounding
    return Difference(is_accepted, text, count, largest, magnitude)


if __name__ == "__main__":
    main()
