"""Files that are published beside a language model: tokenizer, chat template, parameters of the generation."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from tpuconvert.run.language.chat_template import ChatTemplate
from tpuconvert.run.language.sampling import Sampling
from tpuconvert.schema.errors import CorruptInputError, MissingExtraError, TpuConvertError, UsageError
from tpuconvert.schema.system.absent_file import absent_file
from tpuconvert.schema.system.bounded_files import read_bounded, read_text
from tpuconvert.schema.system.input_files import note_input
from tpuconvert.schema.text.json_text import parse_json

TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
GENERATION_CONFIG, TEMPLATE = "generation_config.json", "chat_template.jinja"

AGAIN = "get the file of the model again, or remove it"
"""Next step after an error in a file."""

_SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
"""Special tokens that a chat template may name."""

_NEUTRAL: Mapping[str, Iterable[Any]] = {
    "num_beams": (1,),
    "no_repeat_ngram_size": (0,),
    "encoder_no_repeat_ngram_size": (0,),
    "bad_words_ids": (),
    "sequence_bias": (),
    "suppress_tokens": ([],),
    "begin_suppress_tokens": ([],),
    "forced_bos_token_id": (),
    "forced_eos_token_id": (),
    "guidance_scale": (1,),
    "min_length": (0,),
    "min_new_tokens": (0,),
    "exponential_decay_length_penalty": (),
    "stop_strings": ([],),
    "typical_p": (1,),
    "epsilon_cutoff": (0,),
    "eta_cutoff": (0,),
    "top_h": (),
    "penalty_alpha": (),
    "watermarking_config": (),
    "max_length": (20,),
    "max_time": (),
    "constraints": (),
    "force_words_ids": (),
    "renormalize_logits": (False,),
    "token_healing": (False,),
}
"""Parameters of transformers that are not implemented -> values besides null with which they change no token."""


class Tokenizer(Protocol):
    """The methods of ``tokenizers.Tokenizer`` that are used."""

    def encode(self, sequence: str, *, add_special_tokens: bool = True) -> Any:
        """Return an object with the ``ids`` of a text."""

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, without special tokens."""

    def token_to_id(self, token: str) -> int | None:
        """Return the id of a token; None if the tokenizer does not have the token."""

    def no_truncation(self) -> None:
        """Encode whole texts."""

    def no_padding(self) -> None:
        """Add no tokens at the end of a text."""


class _CheckedTokenizer:
    """A tokenizer whose failures are errors of its file: a file may be read, and still fail on some text or ids."""

    def __init__(self, path: Path, tokenizer: Tokenizer) -> None:
        self._path, self._tokenizer = path, tokenizer

    def encode(self, sequence: str, *, add_special_tokens: bool = True) -> Any:
        with _errors_of(self._path, "the tokenizer cannot encode the text"):
            return self._tokenizer.encode(sequence, add_special_tokens=add_special_tokens)

    def decode(self, ids: Sequence[int]) -> str:
        with _errors_of(self._path, "the tokenizer cannot decode the tokens"):
            return self._tokenizer.decode(ids)

    def token_to_id(self, token: str) -> int | None:
        return self._tokenizer.token_to_id(token)

    def no_truncation(self) -> None:
        self._tokenizer.no_truncation()

    def no_padding(self) -> None:
        self._tokenizer.no_padding()


@contextmanager
def _errors_of(path: Path, problem: str) -> Iterator[None]:
    """Turn what the package raises, an Exception or a panic of Rust that is not one, into an error of the file."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit | MemoryError | TpuConvertError):
            raise
        raise CorruptInputError(f"{problem}: {error}"[:500], file=os.fspath(path), hint=AGAIN) from error


class ModelFiles:
    """Files of a folder, each of which is read when it is needed.

    Args:
        folder: the folder; None if there is none, so that no file exists.
        tokenizer: the file of the tokenizer, ``tokenizer.json`` by default.
    """

    def __init__(self, folder: Path | None, tokenizer: Path | None = None) -> None:
        self._folder = folder
        self._tokenizer_path = tokenizer or self._path(TOKENIZER)

    @classmethod
    def find(cls, tokenizer: str | os.PathLike[str] | None, model: str | os.PathLike[str] | None) -> ModelFiles:
        """Return the files in the folder of ``tokenizer``, or else of the model.

        Args:
            tokenizer: a folder, or a ``tokenizer.json``.
            model: the file of the model; None for a model in memory.

        Raises:
            UsageError: ``tokenizer`` does not exist, or is a folder without a tokenizer.
        """
        if tokenizer is None:
            return cls(None if model is None else Path(model).parent)
        path = Path(tokenizer)
        if not os.path.exists(path):
            raise absent_file(path, or_folder=True)
        if not path.is_dir():
            return cls(path.parent, path)
        if not (path / TOKENIZER).is_file():
            hint = f"name the folder with the {TOKENIZER} of the model, or the file"
            raise UsageError(f"{path}: the folder has no {TOKENIZER}", hint=hint)
        return cls(path)

    def _path(self, name: str) -> Path | None:
        path = None if self._folder is None else self._folder / name
        return path if path is not None and path.is_file() else None

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer.

        Raises:
            UsageError: there is none.
            MissingExtraError: the package ``tokenizers`` is not installed.
            CorruptInputError: the file is not a tokenizer.
        """
        path = self._tokenizer_path
        if path is None:
            hint = f"add --tokenizer FOLDER with its {TOKENIZER}, or give --tokens"
            raise UsageError(f"text needs the tokenizer of the model, which has no {TOKENIZER} beside it", hint=hint)
        try:
            import tokenizers  # optional dependency
        except ImportError as error:
            hint = "pip install 'tpuconvert[language]', or give --tokens"
            raise MissingExtraError("a tokenizer needs the package tokenizers", hint=hint) from error
        note_input(path)
        content = read_bounded(path)
        with _errors_of(path, f"it is not a {TOKENIZER}"):
            loaded = _CheckedTokenizer(path, tokenizers.Tokenizer.from_buffer(content))
            loaded.no_truncation()  # settings of the training, which transformers ignores as well
            loaded.no_padding()
        return loaded

    @cached_property
    def template(self) -> ChatTemplate:
        """The chat template: ``chat_template.jinja``, or else the one in ``tokenizer_config.json``.

        Raises:
            UsageError: there is none.
            CorruptInputError: the files are damaged.
        """
        config, variables = self._tokenizer_config, self._special_tokens
        path = self._path(TEMPLATE)
        if path is not None:
            return ChatTemplate(_read(path), os.fspath(path), variables)
        source = config.get("chat_template")
        if isinstance(source, list):  # several templates with names
            named = {
                item.get("name"): item.get("template")
                for item in source
                if isinstance(item, Mapping) and isinstance(item.get("name"), str)
            }
            source = named.get("default")
        if isinstance(source, str):
            return ChatTemplate(source, str(self._path(TOKENIZER_CONFIG)), variables)
        hint = f"add --tokenizer FOLDER with its {TEMPLATE} or {TOKENIZER_CONFIG}, or continue text"
        raise UsageError("the files of the model contain no chat template", hint=hint)

    @cached_property
    def _tokenizer_config(self) -> Mapping[str, Any]:
        return _read_object(self._path(TOKENIZER_CONFIG))

    @property
    def _special_tokens(self) -> dict[str, str]:
        """Texts of the special tokens. A token is a text, or an object with its ``content``."""
        texts = {}
        for name in _SPECIAL:
            token = self._tokenizer_config.get(name)
            text = token.get("content") if isinstance(token, Mapping) else token
            if isinstance(text, str):
                texts[name] = text
        return texts

    @cached_property
    def sampling(self) -> Sampling:
        """Parameters of ``generation_config.json`` with their meaning in transformers.

        Without ``do_sample`` no token is drawn. Without end tokens in the file, ``eos_token`` of
        ``tokenizer_config.json`` is one, if the tokenizer was loaded.

        Raises:
            CorruptInputError: a value is not valid.
        """
        path = self._path(GENERATION_CONFIG)
        config = _read_object(path)
        file = str(path)
        is_drawn = config.get("do_sample") or False
        if not isinstance(is_drawn, bool):
            message = f"do_sample is {str(is_drawn)[:80]!r}, expected true or false"
            raise CorruptInputError(message, file=file, hint=AGAIN)
        names = [
            "max_new_tokens",
            "repetition_penalty",
            *(["temperature", "top_k", "top_p", "min_p"] if is_drawn else []),
        ]
        values = {name: _number(config, name, file) for name in names}
        if is_drawn:
            values["temperature"] = 1.0 if values["temperature"] is None else values["temperature"]
            values["top_k"] = values["top_k"] or None  # 0 removes the limit
        try:
            return Sampling(stop_tokens=self._end_tokens(config, file), **values)
        except UsageError as error:
            raise CorruptInputError(error.message, file=file, hint=AGAIN) from error

    @property
    def notes(self) -> list[str]:
        """Parameters of ``generation_config.json`` that have no effect here, but change tokens in transformers."""
        path = self._path(GENERATION_CONFIG)
        config = _read_object(path)
        names = [
            name
            for name, values in _NEUTRAL.items()
            if config.get(name) is not None and config[name] not in tuple(values)
        ]
        return [f"{path}: not implemented, and without effect: {', '.join(names)}"] if names else []

    def _end_tokens(self, config: Mapping[str, Any], file: str) -> tuple[int, ...]:
        stored = config.get("eos_token_id")
        tokens = stored if isinstance(stored, list) else [] if stored is None else [stored]
        if not all(type(token) is int and token >= 0 for token in tokens):
            message = f"eos_token_id is {str(stored)[:80]}, expected the id of a token, or a list of ids"
            raise CorruptInputError(message, file=file, hint=AGAIN)
        if not tokens and "tokenizer" in vars(self):
            text = self._special_tokens.get("eos_token")
            token = None if text is None else self.tokenizer.token_to_id(text)
            tokens = [] if token is None else [token]
        return tuple(tokens)


def _number(config: Mapping[str, Any], name: str, file: str) -> Any:
    """Return a number of a configuration; None if it is absent."""
    value = config.get(name)
    is_whole = name in ("max_new_tokens", "top_k")
    if value is None or (type(value) in ((int,) if is_whole else (int, float))):
        return value
    expected = "an integer" if is_whole else "a number"
    raise CorruptInputError(f"{name} is {str(value)[:80]!r}, expected {expected}", file=file, hint=AGAIN)


def _read_object(path: Path | None) -> Mapping[str, Any]:
    """Read a JSON object; empty for no file."""
    if path is None:
        return {}
    try:
        content = parse_json(_read(path))
    except ValueError as error:
        raise CorruptInputError(f"it is not JSON: {error}", file=os.fspath(path), hint=AGAIN) from error
    if not isinstance(content, dict):
        kind = type(content).__name__
        raise CorruptInputError(f"it contains a {kind}, expected an object", file=os.fspath(path), hint=AGAIN)
    return content


def _read(path: Path) -> str:
    note_input(path)
    try:
        return read_text(path)
    except UnicodeDecodeError as error:
        raise CorruptInputError(f"it is not UTF-8: {error}", file=os.fspath(path), hint=AGAIN) from error
