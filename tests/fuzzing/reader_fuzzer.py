"""Coverage-guided fuzzing of the readers with Atheris: one target per format.

    python tests/fuzzing/reader_fuzzer.py onnx -max_total_time=1200 corpus/

The first argument names the target; the others are those of libFuzzer. Seeds are the files of ``seeds.py`` and the
valid files of the mutation campaigns. Mutations are those of libFuzzer on bytes, and those of the campaigns on fields.
``TPUCONVERT_NATIVE_LIBRARY`` is the path of an engine that was compiled with sanitizers, which needs ``LD_PRELOAD`` of
Atheris's ``asan_with_fuzzer.so``.

A finding is an error that is no documented one, a case above ``-timeout`` or ``-rss_limit_mb``, or a report of a
sanitizer. libFuzzer writes its input to a file, and the command with this file repeats it.
"""

from __future__ import annotations

import contextlib
import io
import random
import sys
import tempfile
import warnings
from pathlib import Path

import atheris

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "fuzzing")]

with atheris.instrument_imports(include=["tpuconvert", "yaml", "numpy.lib"]):
    import mutation_campaign as campaign
    from seeds import small_files

    import tpuconvert as tc

TARGETS: dict[str, tuple[str, ...]] = {
    "onnx": ("onnx bytes", "onnx fields"),
    "tflite": ("tflite bytes", "tflite fields"),
    "caffemodel": ("caffemodel bytes", "caffemodel fields"),
    "prototxt": ("prototxt bytes", "prototxt fields"),
    "tpum": ("tpum bytes", "tpum bytes, valid digest", "tpum fields, valid digest"),
    "arrays": ("npz bytes", "npz fields"),
    "manifest": ("manifest bytes", "manifest fields"),
    "preprocess": ("preprocess bytes", "preprocess fields"),
    "ranges": ("ranges bytes", "ranges fields"),
}
"""Target -> formats of the mutation campaigns whose seeds, mutations and use it takes."""

HEADER = campaign.HEADER_SIZE


class Target:
    """One target: uses a file, and mutates its content.

    Args:
        name: a key of ``TARGETS``.
        folder: folder for the file of the current case.

    """

    def __init__(self, name: str, folder: str) -> None:
        self.name = name
        self.formats = [campaign.FORMATS[each] for each in TARGETS[name]]
        self.path = Path(folder) / f"net{self.formats[0].suffix}"
        self.is_signed = name == "tpum"

    def use(self, content: bytes) -> None:
        """Read, convert and run the content of a file. Documented errors are results."""
        if self.is_signed and len(content) > HEADER:
            content = campaign._sign(content)
        self.path.write_bytes(content)
        try:
            with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
                warnings.simplefilter("ignore")
                self.formats[0].use(self.path)
        except tc.InternalError:
            raise
        except tc.TpuConvertError:
            pass

    def mutate(self, content: bytes, max_size: int, seed: int) -> bytes:
        """Return a mutation of the bytes or of the fields, at most ``max_size`` bytes long."""
        chance = random.Random(seed)
        found = b""
        if chance.random() < 0.5:
            with contextlib.suppress(Exception):  # the content is no valid file any more
                found = chance.choice(self.formats).mutate(content, chance)
        return found if 0 < len(found) <= max_size else atheris.Mutate(content, max_size)

    def seeds(self) -> list[bytes]:
        """Return valid files."""
        return [*small_files(self.name), *self.formats[0].seeds()]


def main() -> None:
    """Run a target."""
    name, *options = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="reader-fuzzer-") as folder:
        target = Target(name, folder)
        with atheris.instrument_imports(include=["tpuconvert", "yaml"]):  # modules that are imported on first use
            seeds = target.seeds()
            for seed in seeds:
                target.use(seed)
        if all(not Path(option).is_file() for option in options):  # a file is one case to repeat
            corpus = Path(folder) / "seeds"
            corpus.mkdir()
            for number, seed in enumerate(seeds):
                (corpus / str(number)).write_bytes(seed)
            options.append(str(corpus))
        atheris.Setup([sys.argv[0], *options], target.use, custom_mutator=target.mutate)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
