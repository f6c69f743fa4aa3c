"""Run the exported model from its inputs to its outputs: the compiled program, and then what the host computes.

    python3 run.py [INPUTS.npz [OUTPUTS.npz]]

INPUTS.npz has one array per input of the model, samples along a new first axis; by default the stored samples run, and
their results are compared with the stored ones. On a board (the package sophon.sail is installed) the program runs
on the device, elsewhere in the vendor's simulator: then TPU_MLIR_HOME is the folder of the package tpu_mlir. A model
with a part for the host, host.tpum, needs tpuconvert, others need NumPy only. Exit code 0: done, and the stored results
agree. 1: a result differs. 2: something is missing.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

try:
    import tpuconvert
except ImportError:  # exports without a part for the host run without it
    tpuconvert = None  # type: ignore[assignment]

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER))
from run_bmodel import (  # type: ignore[import-not-found]  # noqa: E402
    compare_tensor,
    device_array,
    fail,
    find_output,
    read_arrays,
    read_manifest,
    stack_samples,
    with_type,
    write_arrays,
)

HOST = FOLDER / "host.tpum"


def device_inputs(manifest: dict[str, Any], inputs: Any) -> dict[str, Any]:
    """Return the inputs of the program: integers with a scale are dequantized."""
    feeds = {}
    for item in manifest["inputs"]:
        name, device_name = item["name"], item["device_name"]
        array = input_array(inputs, name if name in inputs else device_name, name, item["shape"])
        if name in inputs and item["quantize"]:
            array = quantized(array, item["quantize"], np.iinfo(item["device_dtype"]))
        elif name in inputs and name != device_name and item["scale"]:
            array = (array.astype(np.float64) - item["zero_point"][0]) * item["scale"][0]
        elif not (item["device_dtype"] == "bfloat16" and array.dtype == np.uint16):
            check_numbers(array, name, item["dtype"])
        feeds[device_name] = device_array(array, item["device_dtype"])
    return feeds


def input_array(inputs: Any, key: str, name: str, shape: list[int]) -> Any:
    """Return an array of the samples, which has numbers of the shape that the model takes."""
    if key not in inputs:
        fail(f"there is no array '{name}'; the file has {sorted(inputs)}")
    array = np.asarray(inputs[key])
    is_scalar = shape == [1] and array.ndim == 1
    if not is_scalar and list(array.shape[1:]) != shape:
        fail(f"'{name}' has shape {list(array.shape)}, expected [samples, {str(shape)[1:]}")
    if array.dtype.kind not in "biuf":
        fail(f"'{name}' has type {array.dtype}, expected numbers")
    return array.reshape(len(array), *shape)


def host_array(inputs: Any, item: dict[str, Any]) -> Any:
    """Return an input of the model that the part for the host reads."""
    return input_array(inputs, item["port"], item["port"], item["shape"])


def check_numbers(array: Any, name: str, dtype: str) -> None:
    """Refuse numbers that an integer input does not hold."""
    if np.dtype(dtype).kind in "iu" and array.dtype != dtype:
        limits = np.iinfo(dtype)
        if not ((array >= limits.min) & (array <= limits.max) & (array == np.trunc(array))).all():
            fail(f"'{name}' has numbers that are not of type {dtype}, which the model takes")


def count_samples(manifest: dict[str, Any], inputs: Any, feeds: dict[str, Any]) -> int:
    """Return the number of samples, which all inputs of the program and of the host have."""
    arrays = dict(feeds)
    for item in manifest["host_inputs"]:
        if item["port"]:
            arrays[item["port"]] = host_array(inputs, item)
    counts = {name: len(array) for name, array in arrays.items()}
    if len(set(counts.values())) > 1 or not all(counts.values()):
        fail(f"the inputs have {counts} samples, expected the same number, at least 1")
    return next(iter(counts.values()))


def to_port(array: Any, item: dict[str, Any]) -> Any:
    """Return a result of the program in the type and shape of the output of the model."""
    if item["dtype"] == "bool":
        array = array != 0
    return array.reshape(len(array), *item["shape"]).astype(item["dtype"])


def quantized(array: Any, how: dict[str, Any], limits: Any) -> Any:
    """Quantize as the model does: rounded half away from zero, saturated."""
    scaled = (array.astype(np.float32) * np.float32(how["factor"])).astype(np.float64)
    rounded = np.trunc(scaled + np.copysign(0.5, scaled))
    return np.clip(rounded + how["offset"], limits.min, limits.max)


def dequantized(array: Any, how: dict[str, Any] | None) -> Any:
    """Dequantize as the model does, or return the array."""
    if how is None:
        return array
    return (array.astype(np.float32) - np.float32(how["offset"])) * np.float32(how["factor"])


def run_on_board(manifest: dict[str, Any], program: Path, feeds: dict[str, Any], count: int) -> dict[str, Any]:
    """Run the program on the first device. Return its outputs by name, samples along the first axis."""
    import sophon.sail as sail  # type: ignore[import-not-found]  # the vendor's

    engine = sail.Engine(str(program), 0, sail.IOMode.SYSIO)
    graph = engine.get_graph_names()[0]
    names = engine.get_input_names(graph)
    results: dict[str, list[Any]] = {}
    for index in range(count):
        feed = {name: np.ascontiguousarray(feeds[name][index]) for name in names}
        for name, array in engine.process(graph, feed).items():
            results.setdefault(name, []).append(np.array(array))
    arrays = stack_samples(results)
    named = {out["name"]: with_type(find_output(arrays, out["device_name"]), out) for out in manifest["outputs"]}
    return {name: array for name, array in named.items() if array is not None}


def run_in_simulator(feeds: dict[str, Any]) -> dict[str, Any]:
    """Run the program in the simulator, with the interpreter of the environment that has it, as ``run_on_board``."""
    home = Path(os.environ.get("TPU_MLIR_HOME", ""))
    python = os.environ.get("VENDOR_PYTHON") or str(Path(*home.parts[:-4], "bin", "python"))
    if not home.is_absolute() or not os.access(python, os.X_OK):
        fail("neither sophon.sail is installed nor is TPU_MLIR_HOME set; see README.md")
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "inputs.npz"), Path(folder, "outputs.npz")
        write_arrays(source, feeds)
        command = [python, str(FOLDER / "run_bmodel.py"), str(target), str(source)]
        done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
        if done.returncode or not target.exists():
            fail(f"the simulator failed with exit code {done.returncode}")
        arrays: dict[str, Any] = read_arrays(target)
        return arrays


def run_host(feeds: dict[str, Any], count: int) -> dict[str, Any]:
    """Run the part of the host. Return its results by name."""
    if tpuconvert is None:
        fail(f"{HOST.name} needs tpuconvert: python3 -m pip install tpuconvert")
    results: dict[str, list[Any]] = {}
    with tpuconvert.Session(tpuconvert.load(HOST)) as session:
        for index in range(count):
            try:
                outputs = session.run({name: array[index] for name, array in feeds.items()})
            except tpuconvert.TpuConvertError as error:
                fail(f"the part for the host: {error}")
            for name, array in outputs.items():
                results.setdefault(name, []).append(np.array(array))
    stacked: dict[str, Any] = stack_samples(results)
    return stacked


def main() -> int:
    """Run all samples. Return the exit code."""
    if len(sys.argv) > 3 or any(argument.startswith("-") for argument in sys.argv[1:]):
        print(__doc__, file=sys.stderr)
        return 2
    manifest = read_manifest()
    program = FOLDER / f"{manifest['name']}.bmodel"
    if not program.is_file():
        fail(f"there is no {program.name}; run @COMPILE@ first")
    inputs = read_arrays(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER / "inputs.npz")
    feeds = device_inputs(manifest, inputs)
    count = count_samples(manifest, inputs, feeds)
    try:
        program_outputs = run_on_board(manifest, program, feeds, count)
    except ImportError:
        program_outputs = run_in_simulator(feeds)
    computed = {}
    for output in manifest["outputs"]:
        if output["name"] not in program_outputs:
            fail(f"the program returns no '{output['device_name']}'; compile it again")
        computed[output["name"]] = program_outputs[output["name"]].reshape(count, *output["shape"])
    results = {
        item["name"]: to_port(dequantized(computed[item["source"]], item["dequantize"]), item)
        for item in manifest["results"]
        if item["source"]
    }
    if HOST.exists():
        named = {
            item["name"]: host_array(inputs, item) if item["port"] else computed[item["name"]]
            for item in manifest["host_inputs"]
        }
        results.update(run_host(named, count))
    if len(sys.argv) > 2:
        try:
            write_arrays(sys.argv[2], results)
        except OSError as error:
            fail(f"{sys.argv[2]} cannot be written: {error.strerror}")
    if len(sys.argv) > 1:
        for name, array in results.items():
            print(f"{name}  {array.dtype}{list(array.shape)}")
        return 0
    return compare(manifest, results)


def compare(manifest: dict[str, Any], results: dict[str, Any]) -> int:
    """Print one line per output of the model. Return 1 if one differs from the stored results, else 0."""
    differs = False
    described = {item["name"]: item for item in manifest["results"]}
    expected = read_arrays(FOLDER / "results.npz")
    for name in dict.fromkeys([*expected, *results]):
        if name not in expected or name not in results:
            is_accepted, text = False, "other extents in some samples" if name in results else "missing"
        else:
            output = described.get(name, {"is_exact": False})
            is_accepted, text, *_ = compare_tensor(manifest, expected[name], results[name], output)
        differs |= not is_accepted
        print(f"{'ok  ' if is_accepted else 'DIFF'}  {name:<40} {text}")
    return int(differs)


if __name__ == "__main__":
    sys.exit(main())
