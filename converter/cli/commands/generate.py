"""``tpuconvert generate``."""

from __future__ import annotations

from dataclasses import dataclass

import click

from tpuconvert.cli.file_parameters import InputFile
from tpuconvert.cli.json_output import json_option, print_result
from tpuconvert.cli.option_fields import command_options
from tpuconvert.cli.problems import ensure
from tpuconvert.cli.shared_options import EngineOptions, plugin_option
from tpuconvert.conversion.options.declaration import option
from tpuconvert.run.generate import generate


@dataclass(frozen=True, kw_only=True)
class GenerateOptions(EngineOptions):
    """Options of ``generate``."""

    tokens: str | None = option(None, "Ids of the tokens of the prompt, separated by commas.", metavar="IDS")
    prompt: str | None = option(None, "Instead: text, which the tokenizer encodes.", metavar="TEXT")
    tokenizer: str | None = option(
        None,
        "Tokenizer of the model. The result is decoded. Needs the extra 'language'.",
        metavar="tokenizer.json",
        is_file=True,
    )
    max_new_tokens: int = option(32, "Largest number of new tokens.", lower=1)
    temperature: float = option(
        0.0,
        "0 chooses the largest logit; otherwise a token is drawn from the softmax of the logits divided by it.",
        lower=0.0,
    )
    top_k: int | None = option(None, "Draw from the tokens with the K largest logits.", lower=1)
    seed: int = option(0, "Of the random numbers.", lower=0)
    stop_tokens: tuple[int, ...] = option(
        (), "Token after which the generation ends.", flags="--stop-token", metavar="ID", lower=0, is_repeated=True
    )


@click.command("generate")
@click.argument("file", type=InputFile())
@command_options(GenerateOptions)
@json_option
@plugin_option
def command(file: str, options: GenerateOptions, as_json: bool, plugins: tuple[str, ...]) -> None:
    """Continue a sequence of tokens with the decoder in the .tpum FILE.

    \b
    tpuconvert generate decoder.tpum --tokens 1,2,3 --max-new-tokens 16
    tpuconvert generate decoder.tpum --tokenizer tokenizer.json --prompt "Once upon a time"
    """
    tokens = None if options.tokens is None else _ids(options.tokens)
    generation = generate(file, plugins=plugins, **{**vars(options), "tokens": tokens})
    print_result(generation, as_json=as_json)


def _ids(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        ensure(part.isdecimal() and part.isascii(), f"--tokens: '{part}' is not the id of a token", hint="as in 1,2,3")
    return [int(part) for part in parts]
