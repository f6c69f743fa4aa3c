"""``tpuconvert op``: commands for authors of custom operators."""

from __future__ import annotations

import click

from tpuconvert.cli.file_parameters import InputFile
from tpuconvert.cli.help_sections import SectionedCommand
from tpuconvert.cli.json_output import json_option, print_result
from tpuconvert.cli.shared_options import no_plugins_option
from tpuconvert.operators.op_test import op_test


@click.group("op", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Develop custom operators.

    \b
    tpuconvert op test swish.py
    """


@command.command("test", cls=SectionedCommand, short_help="Generate and run the tests of the operators in a plugin.")
@click.argument("file", type=InputFile(), metavar="PLUGIN.py")
@no_plugins_option
@json_option
@click.option("--require-native", is_flag=True, help="Fail when a native kernel is not built.")
def test(file: str, as_json: bool, require_native: bool) -> None:
    """Test the operators that PLUGIN.py registers on the examples in their definitions.

    Inferred types must match the reference, the reference must be deterministic, the native kernel and the integer form
    must agree with the reference, and a saved and loaded model must give the same results. Exit code 5 if a test fails.

    \b
    tpuconvert op test swish.py --require-native
    """
    tests = op_test(file, require_native=require_native)
    print_result(tests, as_json=as_json, wraps=True)
    tests.check()
