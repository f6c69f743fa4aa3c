"""Commands and their functions in Python: every option is a parameter of the function, and vice versa."""

import enum
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import click
import pytest

import tpuconvert as tc
from tpuconvert.cli.group import COMMANDS, group
from tpuconvert.conversion.calibrate import RANGE_OPTIONS
from tpuconvert.conversion.options.options import GROUPS, default_of, names_of
from tpuconvert.precision.tune import NOT_TUNED

FUNCTIONS: dict[str, str] = {
    "convert": "convert",
    "check": "check",
    "inspect": "inspect",
    "bench": "bench",
    "generate": "generate",
    "verify": "verify",
    "attribute": "attribute",
    "calibrate": "calibrate",
    "quantize": "quantize",
    "tune": "tune",
    "evaluate": "evaluate",
    "export": "export",
    "device plan": "device_plan",
    "device compare": "device_compare",
    "device check": "device_check",
    "device setup": "device_setup",
    "doctor": "doctor",
    "reduce": "reduce",
    "reproduce": "reproduce",
    "diff": "diff",
    "ops": "ops",
    "op test": "op_test",
    "passes": "passes",
}
"""Command -> its function in ``tpuconvert``."""

WITHOUT_ARGUMENTS = {"doctor": "installation"}
"""Command -> the function that it calls without arguments, and that has no parameters: ``doctor`` has two functions."""

WITHOUT = {
    "run": "Session.run and Session.run_images take and return arrays; the command reads and writes files",
    "ci": "it is a program of a build service: a manifest, reports for the service, and an exit code",
    "completion": "it prints a script for a shell",
    "demo": "it shows the commands on the bundled example",
}
"""Command -> the reason why it has no function."""

UNUSED_FIELDS = {
    "calibrate": tuple(name for name in names_of(tc.Quantization) if name not in RANGE_OPTIONS),
    "tune": NOT_TUNED,
}
"""Function -> fields of a group that it does not use; its documentation names the others."""

PRINTING = {"--json", "--progress", "--traceback", "--config", "--set", "--no-plugins"}
"""Options of the command line itself: the form of the output, and options from files."""

PYTHON_ONLY = {"progress"}
"""Parameters of functions that the command line has in another form: it draws the progress."""

ELSEWHERE: dict[tuple[str, str], str] = {
    ("convert", "--output"): "Model.save path",
    ("convert", "--verify"): "verify model",
    ("convert", "--report"): "report path",
    ("convert", "--html"): "report path",
    ("convert", "--trace"): "convert watch",
    ("convert", "--dump-after"): "convert watch",
    ("convert", "--validate"): "convert watch",
    ("convert", "--validate-on"): "convert watch",
    ("check", "--for"): "check target",  # `for` is a keyword of Python
    ("inspect", "--report"): "report path",
    ("inspect", "--html"): "report path",
    ("diff", "--html"): "ModelDifference.save path",
    ("diff", "--markdown"): "ModelDifference.save path",
    ("diff", "--all"): "ModelDifference.text everything",
    ("diff", "--fail-on"): "ModelDifference.check fail_on",
    ("diff", "--max-difference"): "ModelDifference.check max_difference",
    ("diff", "--min-cosine"): "ModelDifference.check min_cosine",
    ("diff", "--min-sqnr"): "ModelDifference.check min_sqnr",
    ("diff", "--max-size-growth"): "ModelDifference.check max_size_growth",
    ("diff", "--max-constants-growth"): "ModelDifference.check max_constants_growth",
    ("diff", "--max-cost-growth"): "ModelDifference.check max_cost_growth",
    ("inspect", "--summary"): "Inspection.tables with_nodes",
    ("inspect", "--cost"): "Inspection.tables with_cost",
    ("inspect", "--groups"): "Inspection.tables with_groups",
    ("bench", "--input"): "bench data",
    ("generate", "--prompt-file"): "Generator.generate prompt",
    ("generate", "--chat"): "generate prompt",
    ("generate", "--system"): "generate prompt",
    ("verify", "--max-difference"): "Verification.check max_difference",
    ("verify", "--min-cosine"): "Verification.check min_cosine",
    ("verify", "--min-sqnr"): "Verification.check min_sqnr",
    ("verify", "--max-different"): "Verification.check max_different",
    ("verify", "--threshold"): "Verification.check limits",
    ("verify", "--report"): "report verification",
    ("verify", "--html"): "report verification",
    ("attribute", "--report"): "report attribution",
    ("attribute", "--html"): "report attribution",
    ("tune", "--report"): "report tuning",
    ("tune", "--html"): "report tuning",
    ("quantize", "--output"): "Model.save path",
    ("quantize", "--verify"): "verify model",
    ("quantize", "--report"): "report path",
    ("quantize", "--html"): "report path",
    ("evaluate", "--report"): "report evaluation",
    ("evaluate", "--html"): "report evaluation",
    ("evaluate", "--min"): "Evaluation.check least",
    ("evaluate", "--max"): "Evaluation.check most",
    ("evaluate", "--min-top1"): "Evaluation.check least",
    ("evaluate", "--min-top5"): "Evaluation.check least",
    ("evaluate", "--per-class"): "Evaluation.lines per_class",
    ("evaluate", "--doctor"): "doctor data",
    ("doctor", "--strict"): "Diagnosis.check self",
    ("ops", "name"): "describe_op name",
}
"""Command and option -> the function or method, and its parameter, that has the effect of the option in Python."""

OTHER_DEFAULTS = {
    ("reduce", "--output"): "the command derives it from the name of the source; a source in memory has no name",
    ("tune", "--output"): "the command derives it from the name of the source; a source in memory has no name",
}
"""Command and option -> the reason why the function has another default."""

# The files of these commands are one list on the command line, as the weights are optional and not the last.
FILES = {"files": ("model", "file", "source", "weights", "first", "second", "first_weights", "second_weights")}

SAME = {"model": ("source",), "file": ("model",), "source_format": ("format",), "folder": ("folder", "plan")}
"""Name of a parameter of a command -> names of the parameter of a function."""


def leaves() -> Iterator[tuple[str, click.Command]]:
    """Name and command of every command; commands of a group have two words."""
    context = click.Context(group)
    for name in COMMANDS:
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from ((f"{name} {part}", each) for part, each in command.commands.items())
        else:
            yield name, command


LEAVES = dict(leaves())


def function(name: str) -> Callable[..., Any]:
    """The function or method of this name in ``tpuconvert``."""
    found: Any = tc
    for part in name.split("."):
        found = getattr(found, part)
    assert callable(found)
    return found  # type: ignore[no-any-return]  # checked


def parameters(called: Callable[..., Any]) -> Mapping[str, Any]:
    """Name -> default of every parameter. A group of options is replaced by its fields."""
    found: dict[str, Any] = {}
    for item in inspect.signature(called).parameters.values():
        group = next((group for group in GROUPS.values() if group.__name__ in str(item.annotation)), None)
        if group is None or item.name == "quantize":
            found[item.name] = item.default
        if group is not None:
            unused = UNUSED_FIELDS.get(called.__name__, ())
            found |= {name: default_of(name) for name in names_of(group) if name not in unused}
    return found


def plain(default: Any) -> Any:
    """A default in the form in which both sides can be compared; no value, an empty one and False are the same."""
    if default is inspect.Parameter.empty or "UNSET" in repr(default):
        return None
    if isinstance(default, enum.Enum):
        default = default.value
    if isinstance(default, str):
        return default.lower() if default != "none" else None
    return tuple(default) if isinstance(default, list) else default or None


def long_name(item: click.Parameter) -> str:
    """The first long flag of an option; the name of an argument."""
    return next((flag for flag in item.opts if flag.startswith("--")), str(item.name))


def matches(item: click.Parameter, known: Mapping[str, Any]) -> list[str]:
    """The parameters of a function that a parameter of a command corresponds to."""
    assert item.name is not None
    if item.name in FILES:
        return [name for name in FILES[item.name] if name in known]
    names = (item.name, long_name(item).removeprefix("--").replace("-", "_"), *SAME.get(item.name, ()))
    return [name for name in names if name in known][:1]


def test_every_command_has_a_function_or_a_reason() -> None:
    assert set(LEAVES) == {*FUNCTIONS, *WITHOUT}
    assert {name for name in FUNCTIONS.values() if name not in tc.__all__} == set()


@pytest.mark.parametrize("name", WITHOUT_ARGUMENTS)
def test_commands_without_arguments_are_functions_without_parameters(name: str) -> None:
    assert WITHOUT_ARGUMENTS[name] in tc.__all__
    assert parameters(function(WITHOUT_ARGUMENTS[name])) == {}
    assert [item.name for item in LEAVES[name].params if item.required] == []


def differences(name: str, options: Iterable[click.Parameter], known: Mapping[str, Any]) -> list[str]:
    """Options of a command without a parameter, parameters without an option, and different defaults."""
    found = []
    matched = set(PYTHON_ONLY)
    for item in options:
        flag = long_name(item)
        if flag in PRINTING:
            continue
        if (name, flag) in ELSEWHERE:
            called, parameter = ELSEWHERE[name, flag].split()
            if parameter not in parameters(function(called)):
                found.append(f"{flag}: {called} has no parameter {parameter}")
            matched |= {parameter} if called == FUNCTIONS[name] else set()
            continue
        names = matches(item, known)
        matched |= set(names)
        if not names:
            found.append(f"{flag}: no such parameter")
        elif item.name not in FILES and (name, flag) not in OTHER_DEFAULTS:
            mine, its = plain(item.default), plain(known[names[0]])
            found += [] if mine == its else [f"{flag}: the default is {mine}, but {its} in the function"]
    return [*found, *(f"{parameter}: no such option" for parameter in known if parameter not in matched)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_options_are_parameters_with_the_same_defaults(name: str) -> None:
    assert differences(name, LEAVES[name].params, parameters(function(FUNCTIONS[name]))) == []


def test_differences_are_found() -> None:
    known = parameters(tc.bench)
    options = LEAVES["bench"].params
    assert differences("bench", [*options, click.Option(["--speed"])], known) == ["--speed: no such parameter"]
    assert differences("bench", options, {**known, "speed": 1}) == ["speed: no such option"]
    told = "--warmup: the default is 3, but 4 in the function"
    assert differences("bench", options, {**known, "warmup": 4}) == [told]


def test_exceptions_are_needed() -> None:
    flags = {(name, long_name(item)) for name, command in LEAVES.items() for item in command.params}
    assert set(ELSEWHERE) | set(OTHER_DEFAULTS) <= flags
