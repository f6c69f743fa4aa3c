"""Export small decoders of transformers: ``python -m tools.zoo.decoders make FOLDER``; run them: ``... run FOLDER``.

``time`` prints the CPU time per token of exports of one decoder: with ``--families smollm135m --exporters torchscript
--match open-caches``, for ``make`` too, of a decoder with 135 million weights.
``make`` needs the extra ``zoo`` (PyTorch and transformers). ``run`` needs tpuconvert and onnxruntime: it converts each
export, compares it with transformers, and prints a table.
``train`` and ``public`` need the extra ``zoo``: the first trains a decoder with 1.5 million weights on the sources of
Python's standard library, the second exports the decoder of a GGUF file in the same form.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.zoo.decoders.decoder_cases import EXPORTERS, FAMILIES, cases

NAMES, NAME = r"'[^']*'|<?\b(s\d+|\w+_sequence_length)\b>?|\S+\.onnx", "..."
"""Names in reasons, which differ between exports with the same problem."""


def main(arguments: Sequence[str]) -> int:
    """Make the exports, or run them. Return 1 if a step of an export fails."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", choices=("make", "run", "time", "train", "public"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--families", default=",".join(FAMILIES), help="names with commas")
    parser.add_argument("--exporters", default=",".join(EXPORTERS), help="names with commas")
    parser.add_argument("--match", default="", help="text in the names of the exports")
    parser.add_argument("--compile", metavar="CHIP", help="of run: compile the parts, and run them in the simulator")
    parser.add_argument("--steps", type=int, default=1000, help="steps of train")
    parser.add_argument("--gguf", type=Path, help="file of public")
    given = parser.parse_args(arguments)
    if given.command in ("train", "public"):
        from tools.zoo.decoders.train_decoder import read_gguf, train  # PyTorch is an optional dependency

        train(given.folder, given.steps) if given.command == "train" else read_gguf(given.gguf, given.folder)
        return 0
    chosen = [
        case
        for case in cases(tuple(given.families.split(",")), tuple(given.exporters.split(",")))
        if given.match in case.name
    ]
    if given.command == "make":
        from tools.zoo.decoders.export_decoders import make  # PyTorch is an optional dependency

        make(given.folder, chosen)
        return 0
    if given.command == "time":
        from tools.zoo.decoders.decoding_time import print_times

        print_times(given.folder, [case for case in chosen if case.path(given.folder).exists()])
        return 0
    from tools.zoo.decoders.decoder_trial import COLUMNS, try_case

    print("| export | " + " | ".join(COLUMNS) + " |")
    print("|---" * (len(COLUMNS) + 1) + "|")
    problems: dict[str, list[str]] = {}
    for case in chosen:
        if not case.path(given.folder).exists():
            path = case.refusal_path(given.folder)
            print(f"| {case.name} | {path.read_text().strip() if path.exists() else 'not made'} |", flush=True)
            continue
        trial = try_case(case, given.folder, given.compile)
        print(f"| {case.name} | " + " | ".join(trial.cells()) + " |", flush=True)
        for step, reason in trial.results.items():
            if reason:
                problems.setdefault(f"{step}: {re.sub(NAMES, NAME, reason)}", []).append(case.name)
    for reason, cases_with_it in problems.items():
        print(f"\n{reason}\n  {len(cases_with_it)}: {', '.join(cases_with_it[:4])}")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
