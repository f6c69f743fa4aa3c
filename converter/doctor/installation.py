"""Check of the installation: versions, native engine, optional packages, compilers, and a self-test on the example."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpuconvert.conversion.conversion import Conversion
from tpuconvert.conversion.options.options import Options
from tpuconvert.conversion.source import Source
from tpuconvert.doctor.example import PIXELS, SOURCES, example_folder, load_part
from tpuconvert.exporters.compilation.environment import HOME_VARIABLE, default_folder, environment_in
from tpuconvert.installed import NAME, version
from tpuconvert.requirements import Extra, Package, read_requirements
from tpuconvert.runtime.native.builder.loader import available_isas, chosen_isa, is_left_out, native
from tpuconvert.runtime.session.session import Session
from tpuconvert.runtime.threads import available_threads
from tpuconvert.samples.calibration_data import load_feeds
from tpuconvert.schema.errors import MissingExtraError, ThresholdError, TpuConvertError
from tpuconvert.text.result import Result
from tpuconvert.text.styled_text import concat, style
from tpuconvert.text.text_format import several

COMPILERS = ("c++", "g++", "clang++", "cl")
"""C++ compilers that setup.py searches for, unless the variable CXX names one."""

SAMPLES = 32
"""Number of images in the self-test."""

LOGITS = "fc"
"""Tensor of the bundled ONNX model before its softmax."""


@dataclass(frozen=True)
class Engine:
    """The native engine.

    Args:
        instruction_set: the one that its kernels use; None if the engine cannot run.
        instruction_sets: those that the CPU supports.
        threads: number of threads of a session, if none is given.
        problem: the reason why the engine cannot run; empty if it can.
        hint: the next step.
        is_left_out: whether the package was installed without the engine on purpose, which is not a problem.

    """

    instruction_set: str | None
    instruction_sets: tuple[str, ...]
    threads: int
    problem: str = ""
    hint: str = ""
    is_left_out: bool = False

    def __str__(self) -> str:
        if self.is_left_out:
            return "left out by TPUCONVERT_NATIVE=off; models run on NumPy"
        if self.problem:
            return self.problem
        return f"{self.instruction_set} of {', '.join(self.instruction_sets)}; {several(self.threads, 'thread')}"


@dataclass(frozen=True)
class SelfTest:
    """Results of the native engine and of the reference for the bundled example in INT8.

    Args:
        samples: number of images.
        different: number of images whose results differ in a byte.
        problem: the error that ended the test; empty if it ran to its end.

    """

    samples: int
    different: int
    problem: str = ""

    def __str__(self) -> str:
        if self.problem:
            return self.problem
        if self.different:
            return f"native engine and reference differ for {self.different} of {several(self.samples, 'sample')}"
        return f"native engine and reference give the same bytes for {several(self.samples, 'sample')}"


@dataclass(frozen=True, repr=False)
class Installation(Result, keys={"problem_messages": "problems"}):
    """The state of an installation. A bug report contains its text.

    Args:
        version: version of tpuconvert.
        python: version of Python.
        system: operating system and processor.
        engine: the native engine.
        required: the packages that tpuconvert needs, among them NumPy.
        extras: the groups of optional packages. A missing one is not a problem.
        cxx_compiler: the C++ compiler that builds the native engine, or None.
        vendor_compiler: the program ``tpuc-opt`` of the vendor's compiler, or None.
        self_test: None without the native engine.

    """

    version: str
    python: str
    system: str
    engine: Engine
    required: tuple[Package, ...]
    extras: tuple[Extra, ...]
    cxx_compiler: str | None
    vendor_compiler: str | None
    self_test: SelfTest | None

    @property
    def problems(self) -> list[TpuConvertError]:
        """Errors that ``check`` raises the first of; empty if all is well."""
        problems: list[TpuConvertError] = []
        wrong = [package for package in self.required if not package.fits]
        if wrong:
            hint = f"pip install {' '.join(repr(package.name + package.required) for package in wrong)}"
            problems.append(MissingExtraError(f"required packages: {', '.join(map(str, wrong))}", hint=hint))
        if self.engine.problem and not self.engine.is_left_out:
            problems.append(MissingExtraError(self.engine.problem, hint=self.engine.hint))
        if self.self_test is not None and (self.self_test.different or self.self_test.problem):
            hint = "report it with the output of 'tpuconvert doctor'; backend='reference' runs without the engine"
            problems.append(ThresholdError(f"self-test: {self.self_test}", hint=hint))
        return problems

    @property
    def problem_messages(self) -> list[str]:
        """Messages of the problems; empty with exit code 0."""
        return [problem.message for problem in self.problems]

    def check(self) -> None:
        """Turn a problem into an error.

        Raises:
            MissingExtraError: the native engine does not load, or a required package is missing or too old.
            ThresholdError: the self-test failed.

        """
        for problem in self.problems:
            raise problem

    def lines(self) -> list[str]:
        """Return the report as text."""
        count = len(self.problems)
        verdict = style(several(count, "problem"), "bad") if count else style("the installation works", "good")
        lines = [
            concat([f"{NAME} {self.version}: ", verdict]),
            *(f"  {name + ':':<17}{text}" for name, text in self._facts()),
            "  extras:",
        ]
        for extra in self.extras:
            lines.append(f"    {extra.name + ':':<15}{', '.join(map(str, extra.packages))}")
            if extra.install is not None:
                lines.append(f"    {'':<15}{extra.install}")
        return lines

    def _facts(self) -> list[tuple[str, str]]:
        unset = "not found; exported models need it: tpuconvert device setup"
        return [
            ("Python", self.python),
            ("system", self.system),
            ("packages", ", ".join(map(str, self.required))),
            ("native engine", str(self.engine)),
            ("self-test", "not run without the native engine" if self.self_test is None else str(self.self_test)),
            ("C++ compiler", self.cxx_compiler or "not found; only a build of the native engine needs it"),
            ("vendor compiler", self.vendor_compiler or unset),
        ]

    def _notebook(self) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
        rows = [(extra.name, ", ".join(map(str, extra.packages)), extra.install or "") for extra in self.extras]
        return self.lines()[:1], [("", "found", "command"), *((*fact, "") for fact in self._facts()), *rows]


def installation() -> Installation:
    """Check the installation: versions, native engine, optional packages, compilers.

    A self-test converts the bundled example to INT8, and compares the bytes of the native engine and the reference.

    Returns:
        The state of the installation. ``check`` turns a problem into an error.

    Example:
        >>> state = tc.installation()
        >>> state.check()
        >>> state.self_test.different
        0

    """
    engine = inspect_engine()
    required, extras = read_requirements()
    return Installation(
        version(),
        f"{platform.python_version()} ({platform.python_implementation()})",
        platform.platform(),
        engine,
        required,
        extras,
        find_cxx_compiler(),
        find_vendor_compiler(),
        None if engine.problem else run_self_test(),
    )


def inspect_engine() -> Engine:
    """Load the native engine."""
    threads = available_threads()
    try:
        native()
        return Engine(chosen_isa(), available_isas(), threads)
    except TpuConvertError as error:
        return Engine(None, (), threads, error.message, error.hint, is_left_out())
    except (ImportError, OSError) as error:
        hint = f"install it again for this Python: pip install --force-reinstall --no-cache-dir {NAME}"
        return Engine(None, (), threads, f"the native engine does not load: {error}", hint)


def find_cxx_compiler() -> str | None:
    """Return the path of the C++ compiler that a build of the native engine would use, or None."""
    named = os.environ.get("CXX", "").split()
    return next(filter(None, map(shutil.which, named[:1] or COMPILERS)), None)


def find_vendor_compiler() -> str | None:
    """Return the path of ``tpuc-opt``: where TPU_MLIR_HOME or ``device setup`` has it, otherwise on the PATH."""
    home = os.environ.get(HOME_VARIABLE)
    environment = None if home else environment_in(default_folder())
    if environment is not None:
        return str(environment.program)
    return shutil.which("tpuc-opt", path=None if not home else str(Path(home) / "bin"))


def run_self_test() -> SelfTest:
    """Convert the bundled example to INT8 in memory, and compare the native engine with the reference."""
    try:
        return SelfTest(SAMPLES, _count_differences())
    except TpuConvertError as error:
        return SelfTest(SAMPLES, 0, error.message)


def _count_differences() -> int:
    """Return the number of samples for which the backends return different bytes.

    Only integers are the same in both (docs/inside/engine.md), so that the model ends before its softmax.
    """
    folder = example_folder()
    source, _, layout = SOURCES["onnx"]
    images, _ = load_part(folder, "calibration")
    options = Options.of(preprocess=f"{PIXELS},layout={layout}", quantize="int8", effort="low", outputs=[LOGITS])
    model = Conversion(options, images).of_source(Source(folder / source))
    feeds = list(load_feeds(images[:SAMPLES], model.graph.input_ports, model.preprocess))
    with Session(model, backend="native") as engine, Session(model, backend="reference") as reference:
        return sum(not _have_same_bytes(engine.run(feed), reference.run(feed)) for feed in feeds)


def _have_same_bytes(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    return first.keys() == second.keys() and all(
        (x.dtype, x.shape, x.tobytes()) == (second[name].dtype, second[name].shape, second[name].tobytes())
        for name, x in first.items()
    )
