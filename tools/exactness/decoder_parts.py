"""Compare the parts of a decoder with tpuconvert's runtime in the vendor's simulator, for weights and types.

``TPU_MLIR_HOME=... VENDOR_PYTHON=... python -m tools.exactness.decoder_parts [CHIP]`` prints the table of
docs/guides/language-models.md. The decoder has one block with the sizes of a decoder of 135 million weights.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import numpy as np

import tpuconvert as tc
from tests.support.networks.decoders import EXPLICIT, decoder
from tests.support.vendor.vendor_tools import Vendor
from tpuconvert.conversion.options.options import group_options
from tpuconvert.exporters.decoder_check import compare_logits, run_whole
from tpuconvert.schema.types import Array

SIZES = {"layers": 1, "heads": 9, "kv_heads": 3, "size": 64, "hidden": 1536, "has_tables": False}
CONTEXT, PROMPT, COUNT = 64, (1, 2, 3, 4, 5, 6), 6
CASES = (("int4", "f16"), ("int4", "bf16"), ("int8", "f16"), ("int8", "bf16"), ("int4", "f32"))
COLUMNS = ("weights", "type", f"block, {CONTEXT} tokens", "block, 1 token", "new caches", "logits", "tokens")


def differences(vendor: Vendor, folder: Path) -> dict[str, float]:
    """Run a compiled part on its sample. Return the largest difference of each output, relative to its magnitude."""
    vendor.run([vendor.python, str(folder / "run_bmodel.py"), str(folder / "found.npz")])
    found, expected = np.load(folder / "found.npz"), np.load(folder / "expected.npz")
    return {name: relative(found[name], expected[name]) for name in expected.files}


def relative(actual: Array, expected: Array) -> float:
    """Largest difference as a share of the largest expected magnitude."""
    return float(np.abs(actual.astype(np.float64) - expected).max() / np.abs(expected).max())


def measure(vendor: Vendor, chip: str, weights: str, floats: str, folder: Path) -> str:
    """Return the row of some weights and a type."""
    model = tc.convert(decoder(EXPLICIT, **SIZES), **group_options(weight_type=weights))
    tc.export(model, folder, chip=chip, floats=floats, decoder_context=CONTEXT)
    compiled = vendor.run([str(folder / "compile.sh")])
    assert compiled.returncode == 0, compiled.stderr
    block, cached = (differences(vendor, folder / name) for name in ("block_0", "block_cache_0"))
    caches = max(part[f"past_{kind}"] for part in (block, cached) for kind in "kv")
    prompt, logits = ",".join(map(str, PROMPT)), folder / "logits.npy"
    done = vendor.run([vendor.python, str(folder / "generate.py"), prompt, str(COUNT), str(logits)])
    tokens = [int(token) for token in done.stdout.split("tokens ")[-1].split(",")]
    expected = tc.generate(model, tokens=PROMPT, max_new_tokens=COUNT).new_tokens
    check = compare_logits(np.load(logits), run_whole(model, [*PROMPT, *tokens[:-1]], len(PROMPT)), len(PROMPT))
    numbers = (block["hidden_states"], cached["hidden_states"], caches, check.difference)
    same = sum(a == b for a, b in zip(tokens, expected, strict=True))
    return f"| {weights} | {floats} | {' | '.join(f'{number:.1e}' for number in numbers)} | {same} of {COUNT} |"


def main() -> None:
    """Print the table of a chip, by default BM1688."""
    vendor = Vendor(Path(os.environ["TPU_MLIR_HOME"]), os.environ["VENDOR_PYTHON"])
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
    for weights, floats in CASES:
        with tempfile.TemporaryDirectory() as folder:
            chip = sys.argv[1] if len(sys.argv) > 1 else "bm1688"
            print(measure(vendor, chip, weights, floats, Path(folder, "parts")), flush=True)


if __name__ == "__main__":
    main()
