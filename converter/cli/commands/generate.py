"""``tpuconvert generate``."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, fields

import click

from tpuconvert.cli.file_parameters import InputFile
from tpuconvert.cli.help_sections import SectionedCommand
from tpuconvert.cli.json_output import json_option, print_json
from tpuconvert.cli.option_fields import command_options
from tpuconvert.cli.problems import ensure
from tpuconvert.cli.shared_options import EngineOptions, plugin_option
from tpuconvert.cli.terminal import StreamedText, echo
from tpuconvert.option_declaration import option
from tpuconvert.run.language.generation import Generation, Generations
from tpuconvert.run.language.generator import Generator, Prompt
from tpuconvert.run.language.sampling import Sampling
from tpuconvert.runtime.session.session import ReplanningWarning
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.system.absent_file import absent_file
from tpuconvert.schema.system.bounded_files import read_text


@dataclass(frozen=True, kw_only=True)
class GenerateOptions(Sampling, EngineOptions):
    """Options of ``generate``."""

    tokens: str | None = option(None, "Ids of the tokens of the prompt, separated by commas.", metavar="IDS")
    prompt: tuple[str, ...] = option(
        (), "Instead: text, which the tokenizer encodes. Needs the extra 'language'.", metavar="TEXT", is_repeated=True
    )
    prompt_file: str | None = option(None, "Instead: a file with a prompt per line.", metavar="FILE", is_file=True)
    chat: bool = option(
        False,
        "Answer each prompt as a message, with the chat template. Without a prompt: a conversation by lines of stdin.",
    )
    system: str | None = option(None, "Message of the system that begins each conversation.", metavar="TEXT")
    tokenizer: str | None = option(
        None,
        "Folder with the tokenizer.json of the model and its configuration, or the file. Default: the folder of FILE.",
        metavar="FOLDER",
        is_file=True,
    )

    @property
    def sampling(self) -> Sampling:
        """The choice of the tokens."""
        return Sampling(**{item.name: getattr(self, item.name) for item in fields(Sampling)})


@click.command("generate", cls=SectionedCommand)
@click.argument("file", type=InputFile())
@command_options(GenerateOptions)
@json_option
@plugin_option
def command(file: str, options: GenerateOptions, as_json: bool, plugins: tuple[str, ...]) -> None:
    """Continue a sequence of tokens with the decoder in the .tpum FILE.

    Options that are not kinds are read from the generation_config.json of the model.

    \b
    tpuconvert generate decoder.tpum --tokens 1,2,3 --max-new-tokens 16
    tpuconvert generate decoder.tpum --tokenizer FOLDER --prompt "Once upon a time"
    tpuconvert generate decoder.tpum --chat
    """
    prompts = _prompts(options)
    is_conversation = options.chat and not prompts
    ensure(not (is_conversation and as_json), "--json with --chat, and no prompt", hint="add --prompt TEXT")
    tokens = None if options.tokens is None else _ids(options.tokens)
    settings = {"backend": options.backend, "threads": options.threads, "plugins": plugins}
    with Generator(
        file,
        tokenizer=options.tokenizer,
        sampling=options.sampling,
        **settings,  # type: ignore[arg-type]  # by name
    ) as generator:
        for note in generator.notes:
            echo(f"note: {note}", err=True)
        warnings.simplefilter("ignore", ReplanningWarning)  # a note names the reason, before the text
        if is_conversation:
            _converse(generator, options.system)
            return
        requests: list[Prompt | None] = [_message(text, options) for text in prompts] if tokens is None else [None]
        results = list[Generation]()
        for request in requests:
            if results and not as_json:
                echo("")
            results.append(_continue(generator, request, tokens, is_quiet=as_json))
    if as_json:
        print_json(results[0] if options.prompt_file is None and len(results) == 1 else Generations(tuple(results)))


def _prompts(options: GenerateOptions) -> list[str]:
    """Return the prompts with text, of which there are none with tokens and in a conversation.

    Raises:
        UsageError: there is more than one kind of prompts, or none.
    """
    kinds = [name for name in ("tokens", "prompt", "prompt_file") if getattr(options, name) not in (None, ())]
    ensure(
        len(kinds) == 1 or (options.chat and not kinds),
        "expected either tokens or a prompt",
        hint="--tokens 1,2,3, --prompt TEXT, --prompt-file FILE, or --chat",
    )
    ensure(not (options.chat and options.tokens), "--chat with --tokens", hint="give --prompt TEXT")
    ensure(options.system is None or options.chat, "--system without --chat", hint="add --chat")
    if options.prompt_file is None:
        return list(options.prompt)
    try:
        lines = read_text(options.prompt_file).split("\n")
    except FileNotFoundError as error:
        raise absent_file(options.prompt_file) from error
    except UnicodeDecodeError as error:
        hint = "save it as UTF-8, with a prompt per line"
        raise UsageError(f"it is not UTF-8: {error}", file=options.prompt_file, hint=hint) from error
    prompts = [line for line in lines if line.strip()]
    ensure(bool(prompts), f"{options.prompt_file}: no prompt", hint="write a prompt per line")
    return prompts


def _message(text: str, options: GenerateOptions) -> Prompt:
    """Return the prompt of a text: the text, or a conversation."""
    return [*_system(options.system), {"role": "user", "content": text}] if options.chat else text


def _system(text: str | None) -> list[dict[str, str]]:
    return [] if text is None else [{"role": "system", "content": text}]


def _continue(generator: Generator, prompt: Prompt | None, tokens: list[int] | None, *, is_quiet: bool) -> Generation:
    """Print a continuation while it is generated, and its speed on stderr."""
    stream, output = generator.stream(prompt, tokens=tokens), StreamedText()
    try:
        for number, token in enumerate(stream):
            if not is_quiet:
                ids = f",{token.id}" if number else str(token.id)
                output.write(token.text if stream.generation.text is not None else ids)
    finally:  # an error begins on a line of its own
        if not is_quiet and stream.generation.new_tokens:
            output.end()
    if not is_quiet:
        echo(stream.generation.speed, err=True)
    return stream.generation


def _converse(generator: Generator, system: str | None) -> None:
    """Answer the lines of stdin, as messages of one conversation."""
    messages = _system(system)
    for text in _lines():
        messages.append({"role": "user", "content": text})
        answer = _continue(generator, messages, None, is_quiet=False)
        messages.append({"role": "assistant", "content": answer.text or ""})


def _lines() -> Iterator[str]:
    """Yield the lines of stdin that are not empty; on a terminal, after a prompt, until the end of the input."""
    while True:
        try:
            line = input("> ") if sys.stdin.isatty() else sys.stdin.readline()
        except EOFError:
            echo("")
            return
        if not line and not sys.stdin.isatty():
            return
        if line.strip():
            yield line.rstrip("\n")


def _ids(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        ensure(part.isdecimal() and part.isascii(), f"--tokens: '{part}' is not the id of a token", hint="as in 1,2,3")
    return [int(part) for part in parts]
