"""The examples in the docstrings of the public names run, and print what they say."""

import doctest
import inspect
import shutil
from pathlib import Path

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.commands.json_calls import SWISH
from tests.support.networks.decoders import decoder
from tests.support.sampled import sampled
from tpuconvert.cli.group import COMMANDS

NAMES = {name: getattr(tc, name) for name in tc.__all__ if not name.startswith("_")}
TESTS = {
    test.name: test
    for name, item in [*NAMES.items(), ("Session", tc.Session.__base__)]  # the base class contains most of the methods
    for test in doctest.DocTestFinder().find(item, name, module=False, globs={"tc": tc, "np": np})
    if test.examples
}
"""Dotted name -> its examples."""


@pytest.fixture
def folder(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder of the examples: the bundled networks, samples with labels, a decoder, and a
    plugin."""
    digits = repository / "examples" / "digits"
    for path in digits.iterdir():
        if path.suffix in (".onnx", ".tflite", ".prototxt", ".caffemodel", ".npz"):
            shutil.copy(path, tmp_path)
    with np.load(digits / "digits.npz") as archive:
        chosen = archive["test"][:60]
        np.savez(tmp_path / "labeled.npz", images=archive["images"][chosen], labels=archive["labels"][chosen])
    tc.convert(decoder(seed=3)).save(tmp_path / "decoder.tpum")
    (tmp_path / "swish_plugin.py").write_text(SWISH.replace("json_swish", "docstring_swish"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", sampled(TESTS, every=2))
def test_example_prints_what_it_says(name: str) -> None:
    failed: list[str] = []
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    runner.run(TESTS[name], out=failed.append)
    assert failed == [], "".join(failed)


def test_functions_of_commands_have_examples() -> None:
    functions = {name for name, item in NAMES.items() if inspect.isfunction(item) and name in COMMANDS}
    assert functions <= set(TESTS)
    assert "Session.run" in TESTS
