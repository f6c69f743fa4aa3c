"""Run a compiled program on the device, and write all tensors that it returns.

    python3 run_device.py PROGRAM.bmodel DUMPS.npz [DEVICE]

A copy of this file is part of every plan. It needs NumPy and the Python package of the vendor's runtime (sophon.sail),
no package of tpuconvert. Compile the program from an export with --with-checks, so that it returns every tensor.
Compare the result with the model where tpuconvert is installed: tpuconvert device compare MODEL.tpum DUMPS.npz
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).resolve().parent


def main() -> int:
    """Run all samples; return the exit code."""
    if len(sys.argv) not in (3, 4):
        print(__doc__, file=sys.stderr)
        return 2
    program, target = sys.argv[1:3]
    try:
        import sophon.sail as sail  # type: ignore[import-not-found]  # the vendor's
    except ImportError:
        print("run_device.py: the package sophon.sail is not installed; it is part of the runtime", file=sys.stderr)
        return 2
    if not Path(program).is_file():
        print(f"run_device.py: there is no {program}; compile the export first", file=sys.stderr)
        return 2
    plan = json.loads((FOLDER / "plan.json").read_text(encoding="utf-8"))
    inputs = np.load(FOLDER / "device_inputs.npz")
    engine = sail.Engine(program, int(sys.argv[3]) if len(sys.argv) > 3 else 0, sail.IOMode.SYSIO)
    graph = engine.get_graph_names()[0]
    names = engine.get_input_names(graph)
    missing = [name for name in names if name not in inputs.files]
    if missing:
        print(
            f"run_device.py: the plan has no input {', '.join(missing)}; make it from the same model", file=sys.stderr
        )
        return 2
    results: dict[str, list[Any]] = {}
    for index in range(plan["samples"]):
        feed = {name: np.ascontiguousarray(inputs[name][index]) for name in names}
        for name, array in engine.process(graph, feed).items():
            results.setdefault(name, []).append(np.array(array))
    arrays: dict[str, Any] = {name: np.stack(items) for name, items in results.items()}
    np.savez(target, program_digest=plan["program_digest"], **arrays)
    print(f"wrote {target}: {len(results)} tensors of {plan['samples']} samples")
    return 0


if __name__ == "__main__":
    sys.exit(main())
