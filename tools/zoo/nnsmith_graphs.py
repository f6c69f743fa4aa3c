"""Graphs of NNSmith, a generator of neural networks by others, compared with ONNX Runtime.

    build/nnsmith-venv/bin/python -m tools.zoo.nnsmith_graphs make build/nnsmith --seed 0 --count 500
    .venv/bin/python -m tools.zoo.nnsmith_graphs run build/nnsmith --chip bm1684

``make`` needs the extra ``nnsmith`` in an environment of its own (`make nnsmith` installs it): NNSmith needs PyTorch,
which the project does not. It writes ``SEED.onnx`` and ``SEED.npz`` with the inputs. ``run`` converts each graph and
compares it as tests/support/onnx/campaign.py does with the project's own random graphs: in float or, with
``--mode int8``, in INT8.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx

_MOST_ELEMENTS = 4096
_SECONDS = 3


def make(folder: Path, first: int, count: int) -> None:
    """Write graphs of 3 to 15 nodes; seeds for which NNSmith finds none in time are left out."""
    torch_onnx = importlib.import_module("torch.onnx")
    # NNSmith is written for the exporter by TorchScript.
    torch_onnx.export = functools.partial(torch_onnx.export, dynamo=False)  # type: ignore[attr-defined]
    kind = importlib.import_module("nnsmith.materialize").Model.init("onnx", backend_target="cpu")
    kind.add_seed_setter()
    operators = importlib.import_module("nnsmith.narrow_spec").auto_opset(kind, None, vulops=False)
    importlib.import_module("nnsmith.abstract.extension").activate_ext(opset=operators, factory=None)
    generate = importlib.import_module("nnsmith.graph_gen").model_gen
    folder.mkdir(parents=True, exist_ok=True)
    for seed in range(first, first + count):
        random.seed(seed)
        np.random.seed(seed % 2**32)
        try:
            generator = generate(
                opset=operators,
                method="symbolic-cinit",
                seed=seed,
                max_elem_per_tensor=_MOST_ELEMENTS,
                max_nodes=3 + seed % 13,
                timeout_ms=1000 * _SECONDS,
            )
            model = kind.from_gir(generator.make_concrete())
            model.refine_weights()
            inputs = model.make_oracle().input
            model.dump(str(folder / f"{seed}.onnx"))
        except Exception as error:  # no solution, or an operator that PyTorch no longer exports
            print(f"seed {seed}: {type(error).__name__}", file=sys.stderr)
            continue
        arrays: dict[str, Any] = {name: np.asarray(array) for name, array in inputs.items()}
        np.savez(folder / f"{seed}.npz", **arrays)


def run(folder: Path, chip: str, mode: str) -> int:
    """Compare all graphs of a folder; print counts and findings, and return 1 if there are any."""
    # Not at the top: the environment of NNSmith, in which ``make`` runs, does not have this package.
    from tests.support.onnx.random_graphs import comparison
    from tests.support.onnx.random_graphs.foreign import read_case

    counts: Counter[str] = Counter()
    groups: Counter[tuple[str, str]] = Counter()
    options: dict[str, Any] = {"chip": chip, "quantize": mode == "int8"}
    for path in sorted(folder.glob("*.onnx"), key=lambda path: int(path.stem)):
        if not path.with_suffix(".npz").exists():
            continue  # interrupted
        with np.load(path.with_suffix(".npz")) as feeds:
            case = read_case(onnx.load(path), dict(feeds), int(path.stem))
        outcome = comparison.Outcome("no graph") if case is None else comparison.check(case, **options)
        counts[outcome.kind] += 1
        groups[outcome.kind, outcome.group] += outcome.kind not in ("equal", "no graph")
        if case is not None and outcome.is_finding and groups[outcome.kind, outcome.group] <= 2:
            smallest = comparison.reduce_case(case, outcome, **options)
            print(
                f"{path.name}: {outcome.kind}: {outcome.reason}\n{onnx.printer.to_text(smallest.model)[:2000]}",
                flush=True,
            )
    print(f"{mode}, {chip}: {sum(counts.values()) - counts['no graph']} graphs of NNSmith")
    for kind, number in sorted(counts.items()):
        print(f"    {number:6d} {kind}")
    for (kind, group), number in sorted(groups.items()):
        if number:
            print(f"  {number:5d} {kind}: {group}")
    return int(any(comparison.Outcome(kind).is_finding for kind in counts))


def main(arguments: list[str]) -> int:
    """Make or run graphs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    maker, runner = commands.add_parser("make"), commands.add_parser("run")
    for command in (maker, runner):
        command.add_argument("folder", type=Path)
    maker.add_argument("--seed", type=int, default=0)
    maker.add_argument("--count", type=int, default=500)
    runner.add_argument("--chip", choices=("bm1684", "bm1686"), default="bm1686")
    runner.add_argument("--mode", choices=("float", "int8"), default="float")
    options = parser.parse_args(arguments)
    if options.command == "make":
        make(options.folder, options.seed, options.count)
        return 0
    return run(options.folder, options.chip, options.mode)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
