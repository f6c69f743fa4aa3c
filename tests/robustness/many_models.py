"""Convert, write, load, run and drop many models in one process, and measure what stays.

    python -m tests.robustness.many_models --models 5000 --kinds 50 --limit-mib 3000

The kinds are random ONNX graphs of different seeds, in turn in float and in INT8, for two chips. Each conversion of a
kind must give the same bytes and the same results. Prints a JSON object: models, growth of resident memory in MiB
between the first third and the rest, further descriptors and threads, and what differed. ``--limit-mib`` bounds the
address space, so that a leak ends the process.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import tpuconvert as tc
from tests.support.onnx.random_graphs.drawing import Settings
from tests.support.onnx.random_graphs.graphs import draw_graph
from tpuconvert.conversion.options.options import group_options

MIB = 1 << 20
CHIPS = ("bm1684", "bm1686")


class Kind:
    """One model, and how it is converted.

    Args:
        seed: of the graph.

    """

    def __init__(self, seed: int) -> None:
        drawing = draw_graph(seed, Settings(is_calm=True))
        model = drawing.model()
        self.source: onnx.ModelProto = model
        self.feed: dict[str, Any] = drawing.feeds(model, 0)
        self.options: dict[str, Any] = {"chip": CHIPS[seed // 2 % 2]}
        self.options["input_shapes"] = {name: np.shape(array) for name, array in self.feed.items()}
        if seed % 2:
            self.options |= {"quantize": "int8", "calibration": [self.feed]}

    def digest(self, path: Path) -> str:
        """Convert, write, load and run the model; return the digest of the file and of the results."""
        tc.convert(self.source, **group_options(**self.options)).save(path)
        with tc.Session(path) as session:
            results = session.run(self.feed)
        digest = hashlib.sha256(path.read_bytes())
        for name in sorted(results):
            digest.update(np.ascontiguousarray(results[name]).tobytes())
        return digest.hexdigest()


def kinds(count: int, folder: Path) -> Iterator[tuple[Kind, str]]:
    """Yield kinds that can be converted, with their digests."""
    seed = found = 0
    while found < count:
        seed += 1
        try:
            kind = Kind(seed)
            digest = kind.digest(folder / "net.tpum")
        except tc.TpuConvertError:  # an operator without a form, or floats that INT8 cannot hold
            continue
        found += 1
        yield kind, digest


def resident() -> int:
    """Return the resident memory in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def held() -> dict[str, int]:
    """Return the numbers of descriptors and threads."""
    return {
        what: len(os.listdir(f"/proc/self/{place}")) for what, place in (("descriptors", "fd"), ("threads", "task"))
    }


def measure(models: int, count: int) -> dict[str, Any]:
    """Convert models in turns of all kinds, and return what was measured."""
    sizes, different = [], []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.tpum"
        listed = list(kinds(count, Path(folder)))
        before = held()
        for index in range(models):
            kind, expected = listed[index % count]
            if kind.digest(path) != expected:
                different.append(index)
            if index % count == count - 1:  # each turn has the same models
                sizes.append(resident())
        after = held()
    first = len(sizes) // 3
    growth = (max(sizes[first:]) - max(sizes[:first])) / MIB
    further = {what: after[what] - before[what] for what in before}
    return {"models": models, "kinds": count, "growth": round(growth, 1), **further, "different": different}


def main() -> int:
    """Measure, print, and return 1 if something grew or differed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=5000)
    parser.add_argument("--kinds", type=int, default=50)
    parser.add_argument("--limit-mib", type=int, default=3000)
    parser.add_argument("--most-growth", type=float, default=16.0, help="MiB that the allocator may keep")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (options.limit_mib * MIB,) * 2)
    warnings.simplefilter("ignore")
    measured = measure(options.models, options.kinds)
    print(json.dumps(measured))
    is_flat = measured["growth"] <= options.most_growth and measured["descriptors"] <= 0 and measured["threads"] <= 0
    return int(not is_flat or bool(measured["different"]))


if __name__ == "__main__":
    sys.exit(main())
