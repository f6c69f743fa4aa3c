"""Write ``docs/reference/options.md``: the options of every command in full.

    python -m tools.pages.command_options [--check]

``--help`` has one sentence for each.
"""

import sys
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from pathlib import Path

import click

from tools.pages.generated_file import write_or_check
from tpuconvert.cli.group import COMMAND_GROUPS, load_command
from tpuconvert.cli.help_sections import topic_of
from tpuconvert.conversion.options.options import OPTIONS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "options.md"
TOOL = "tools.pages.command_options"

SHARED = 5
"""Number of commands from which on an option is in the first table."""

_INTRODUCTION = """# Options of every command

Made by `python -m tools.pages.command_options` from the declarations that `--help` reads. Options of a conversion are
described on the page of the [command line](commands.md#conversion-options).
"""


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yield the commands in the order of ``tpuconvert --help``, with their subcommands."""
    for names in COMMAND_GROUPS.values():
        for name in names:
            command = load_command(name)
            if isinstance(command, click.Group):
                yield from ((f"{name} {part}", item) for part, item in command.commands.items())
            else:
                yield name, command


def row_of(item: click.Option) -> str:
    """Return the row of an option."""
    record = item.get_help_record(click.Context(click.Command("")))
    assert record is not None, "no option is hidden"
    flags, text = (" ".join(part.split()).replace("|", r"\|") for part in record)
    return f"| `{flags}` | {text} |"


def options_of(command: click.Command) -> list[click.Option]:
    """Return the options of a command."""
    return [item for item in command.params if isinstance(item, click.Option)]


def section_of(name: str, command: click.Command, shared: Container[str]) -> Iterator[str]:
    """Yield the lines about a command.

    Args:
        name: name of the command.
        command: the command.
        shared: rows of the options that are in the first table of the page.
    """
    context = click.Context(command, info_name=f"tpuconvert {name}")
    yield from ("", f"## {name}", "", f"    {' '.join([context.command_path, *command.collect_usage_pieces(context)])}")
    options = options_of(command)
    others = [item for item in options if item.name not in OPTIONS]
    rows = [row_of(item) for item in sorted(others, key=topic_of)]
    yield from _table(row for row in rows if row not in shared)
    for text, names in (
        ("Options of several commands", [item.opts[-1] for item in others if row_of(item) in shared]),
        ("Options of a conversion", [item.opts[-1] for item in options if item.name in OPTIONS]),
    ):
        if names:
            yield from ("", f"{text}: {', '.join(f'`{name}`' for name in names)}.")


def _table(rows: Iterable[str]) -> list[str]:
    lines = list(rows)
    return ["", "| option | |", "|---|---|", *lines] if lines else []


def page() -> bytes:
    """Return the page."""
    every = dict(commands())
    counts = Counter(row_of(item) for command in every.values() for item in options_of(command))
    own = {row_of(item) for command in every.values() for item in options_of(command) if item.name not in OPTIONS}
    shared = [row for row, count in counts.items() if count >= SHARED and row in own]
    lines = ["", "## Options of several commands", *_table(shared)]
    for name, command in every.items():
        lines += section_of(name, command, shared)
    return "\n".join([_INTRODUCTION.rstrip(), *lines, ""]).encode()


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, page, tool=TOOL, description="Write the page about the options of every command."))
