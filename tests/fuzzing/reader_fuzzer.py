"""Coverage-guided fuzzing of the readers with Atheris: one target per format.

    python -m tests.fuzzing.reader_fuzzer onnx -max_total_time=1200 corpus/

The first argument names the target; the others are options of libFuzzer. Seeds are the files of ``seeds.py`` and the
valid files of the mutation campaigns. libFuzzer mutates bytes, the mutations of the campaigns change fields.
``TPUCONVERT_NATIVE_LIBRARY`` is the path of an engine that was compiled with sanitizers, which needs ``LD_PRELOAD`` of
Atheris's ``asan_with_fuzzer.so``.

A finding is an error that is not documented, a case above ``-timeout`` or ``-rss_limit_mb``, or a report of a
sanitizer. libFuzzer writes its input to a file, and the command with this file repeats it.
"""

from __future__ import annotations

import contextlib
import functools
import random
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["tpuconvert", "yaml", "numpy.lib"]):
    from tests.fuzzing.reader_targets import Target
    from tests.fuzzing.seeds import small_files


def mutate(target: Target, content: bytes, max_size: int, seed: int) -> bytes:
    """Return a mutation of the bytes or of the fields, at most ``max_size`` bytes long."""
    chance = random.Random(seed)
    found = b""
    if chance.random() < 0.5:
        with contextlib.suppress(Exception):  # the content is not a valid file any more
            found = chance.choice(target.formats).mutate(content, chance)
    return found if 0 < len(found) <= max_size else atheris.Mutate(content, max_size)


def main() -> None:
    """Run a target."""
    name, *options = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="reader-fuzzer-") as folder:
        target = Target(name, folder)
        with atheris.instrument_imports(include=["tpuconvert", "yaml"]):  # modules that are imported on first use
            seeds = [*small_files(name), *target.formats[0].seeds()]
            for seed in seeds:
                target.use(seed)
        if all(not Path(option).is_file() for option in options):  # a file is one case to repeat
            corpus = Path(folder) / "seeds"
            corpus.mkdir()
            for number, seed in enumerate(seeds):
                (corpus / str(number)).write_bytes(seed)
            options.append(str(corpus))
        atheris.Setup([sys.argv[0], *options], target.use, custom_mutator=functools.partial(mutate, target))
        atheris.Fuzz()


if __name__ == "__main__":
    main()
