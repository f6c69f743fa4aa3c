"""``tpuconvert generate``."""

from __future__ import annotations

from typing import Any

import click

from tpuconvert.cli.file_parameters import InputFile
from tpuconvert.cli.json_output import json_option, print_json
from tpuconvert.cli.problems import ensure
from tpuconvert.cli.shared_options import engine_options, plugin_option
from tpuconvert.cli.terminal import echo
from tpuconvert.run.generate import generate


@click.command("generate")
@click.argument("file", type=InputFile())
@click.option("--tokens", metavar="IDS", help="Ids of the tokens of the prompt, separated by commas.")
@click.option("--prompt", metavar="TEXT", help="Instead: text, which the tokenizer encodes.")
@click.option(
    "--tokenizer",
    type=InputFile(),
    metavar="tokenizer.json",
    help="Tokenizer of the model. The result is decoded. Needs the extra 'language'.",
)
@click.option(
    "--max-new-tokens", type=click.IntRange(min=1), default=32, show_default=True, help="Largest number of new tokens."
)
@click.option(
    "--temperature",
    type=click.FloatRange(min=0),
    default=0.0,
    show_default=True,
    help="0 chooses the largest logit; otherwise a token is drawn from the softmax of the logits divided by it.",
)
@click.option("--top-k", type=click.IntRange(min=1), help="Draw from the tokens with the K largest logits.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the random numbers.")
@click.option(
    "--stop-token",
    "stop_tokens",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="ID",
    help="Token after which the generation ends. Can be repeated.",
)
@engine_options
@json_option
@plugin_option
def command(
    file: str,
    tokens: str | None,
    prompt: str | None,
    tokenizer: str | None,
    max_new_tokens: int,
    temperature: float,
    top_k: int | None,
    seed: int,
    stop_tokens: tuple[int, ...],
    backend: Any,
    threads: int | None,
    as_json: bool,
    plugins: tuple[str, ...],
) -> None:
    """Continue a sequence of tokens with the decoder in the .tpum FILE.

    \b
    tpuconvert generate decoder.tpum --tokens 1,2,3 --max-new-tokens 16
    tpuconvert generate decoder.tpum --tokenizer tokenizer.json --prompt "Once upon a time"
    """
    found = generate(
        file,
        tokens=None if tokens is None else _ids(tokens),
        prompt=prompt,
        tokenizer=tokenizer,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_k=top_k,
        seed=seed,
        stop_tokens=stop_tokens,
        backend=backend,
        threads=threads,
        plugins=plugins,
    )
    if as_json:
        print_json(found.to_dict())
    else:
        echo(str(found))


def _ids(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        ensure(part.isdecimal() and part.isascii(), f"--tokens: '{part}' is not the id of a token", hint="as in 1,2,3")
    return [int(part) for part in parts]
