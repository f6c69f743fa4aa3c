"""Examples in the help of the commands."""

import shlex
from collections.abc import Iterator

import click
import pytest

from tpuconvert.cli.group import COMMANDS, group


def commands() -> Iterator[tuple[str, click.Command]]:
    """Name and command of every command, of groups, and of the commands in groups."""
    context = click.Context(group)
    for name in COMMANDS:
        command = group.get_command(context, name)
        yield name, command
        if isinstance(command, click.Group):
            yield from ((f"{name} {part}", each) for part, each in command.commands.items())


ALL = dict(commands())


def examples(name: str) -> list[list[str]]:
    """The words of every example in the help of a command, without the program; a shell's redirection is left out."""
    text = (ALL[name].help or "").replace("\\\n", " ")
    lines = [line[line.index("tpuconvert ") :] for line in text.splitlines() if "tpuconvert " in line]
    return [shlex.split(line.split(" > ")[0], comments=True)[1:] for line in lines]


def command_of(words: list[str]) -> tuple[str, click.Command]:
    """The command that an example calls."""
    name = " ".join(words[:2])
    return (name, ALL[name]) if name in ALL else (words[0], ALL[words[0]])


@pytest.mark.parametrize("name", ALL)
def test_help_has_an_example_of_the_command(name: str) -> None:
    called = [command_of(words)[0] for words in examples(name)]
    assert any(each == name or each.startswith(f"{name} ") for each in called)


@pytest.mark.parametrize("name", ALL)
def test_options_of_examples_exist(name: str) -> None:
    for words in examples(name):
        called, command = command_of(words)
        flags = {flag for item in command.params for flag in (*item.opts, *item.secondary_opts)}
        used = {word.split("=")[0] for word in words if word.startswith("-")}
        assert used <= flags, f"{called}: {used - flags}"


def test_values_of_examples_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpuconvert.cli.file_parameters.InputFile.convert", lambda _self, value, *_: value)
    monkeypatch.setattr("tpuconvert.cli.file_parameters.OutputFile.convert", lambda _self, value, *_: value)
    for words in (words for name in ALL for words in examples(name)):
        called, command = command_of(words)
        command.make_context(called, words[len(called.split()) :]).close()
