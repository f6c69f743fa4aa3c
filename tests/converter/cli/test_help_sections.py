"""``COMMAND --help``: at most twelve options before those with a topic, one sentence each, and two screens."""

import configparser
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tpuconvert.cli.group import COMMAND_GROUPS, COMMANDS, WIDTH, group, load_command
from tpuconvert.cli.help_sections import _TOPICS, FIRST, MOST, SectionedCommand, first_sentence, topic_of
from tpuconvert.installed import PAGES

SCREENS = 100
"""Lines of two screens."""


def every_command() -> Iterator[tuple[str, click.Command]]:
    """Yield the commands, with their subcommands."""
    for name in COMMANDS:
        command = load_command(name)
        if isinstance(command, click.Group):
            yield from ((f"{name} {part}", item) for part, item in command.commands.items())
        else:
            yield name, command


ALL = dict(every_command())


def help_of(command: click.Command) -> str:
    context = click.Context(command, info_name="tpuconvert", terminal_width=WIDTH, max_content_width=WIDTH)
    return command.get_help(context)


@pytest.mark.parametrize("name", ALL)
def test_first_section_has_the_usual_options(name: str) -> None:
    options = [item for item in ALL[name].params if isinstance(item, click.Option)]
    assert isinstance(ALL[name], SectionedCommand)
    sections = Counter(topic_of(item) for item in options)
    assert len(options) <= MOST or sections[FIRST] <= MOST


@pytest.mark.parametrize("name", ALL)
def test_help_fits_two_screens(name: str) -> None:
    text = help_of(ALL[name])
    assert len(text.splitlines()) <= SCREENS
    assert max(map(len, text.splitlines())) <= WIDTH


@pytest.mark.parametrize("name", ALL)
def test_every_option_is_in_the_help(name: str) -> None:
    text = help_of(ALL[name])
    for item in ALL[name].params:
        if isinstance(item, click.Option) and not item.hidden:
            assert item.opts[-1] in text


def test_help_names_the_page_with_the_whole_texts(repository: Path) -> None:
    setup = configparser.ConfigParser()
    setup.read(repository / "setup.cfg")
    assert PAGES.replace("/blob/", "/tree/") in setup["metadata"]["project_urls"]
    page = (repository / "docs" / "reference" / "options.md").read_text(encoding="utf-8")
    for name, command in ALL.items():
        context = click.Context(command, parent=click.Context(group, info_name="tpuconvert"), info_name=name)
        anchor = name.replace(" ", "-")
        assert command.get_help(context).endswith(f"\nIn full: {PAGES}/reference/options.md#{anchor}")
        assert f"\n## {name}\n" in page


def test_topics_name_options() -> None:
    names = {item.name for command in ALL.values() for item in command.params}
    assert {name for topic in _TOPICS.values() for name in topic} <= names


def test_commands_have_headings() -> None:
    text = help_of(group)
    positions = [text.index(f"\n{title}:\n") for title in COMMAND_GROUPS]
    assert positions == sorted(positions)
    assert sum(map(len, COMMAND_GROUPS.values())) == len(COMMANDS)


@pytest.mark.parametrize(
    ("text", "shortened"),
    [
        ("One. two  [default: 3; x>=1]", "One.  [default: 3]"),
        ("Limits, e.g. 2e8; or (exit code 5) more. Rest", "Limits, e.g. 2e8; or (exit code 5) more."),
        ("Without a default. Rest  [0<=x<=1]", "Without a default."),
        ("Data.  [required]", "Data.  [required]"),
    ],
)
def test_first_sentence(text: str, shortened: str) -> None:
    assert first_sentence(text) == shortened
