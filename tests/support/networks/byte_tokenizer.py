"""A tokenizer of bytes for the decoders of the tests, with the files that are published beside a model."""

import json
from pathlib import Path
from typing import Any

SPECIAL = ("<s>", "</s>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>")
LETTERS = "abcdefghijklmnopqrstuvwxyz.,?!AHIT"
BYTES = {" ": "\u0120", "\n": "\u010a", "\u00c3": "\u00c3", "\u00a9": "\u00a9", "\u00e2": "\u00e2", "\u0082": "\u0124"}
"""Latin-1 character of a byte -> its character in a vocabulary of bytes; two are an accented e."""

VOCABULARY = [*SPECIAL, *LETTERS, *BYTES.values(), "th", "he", "in", "er"]

TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def ids_of(*tokens: str) -> list[int]:
    return [VOCABULARY.index(token) for token in tokens]


def write_tokenizer(folder: Path, *, template: str | None = TEMPLATE, generation: dict[str, Any] | None = None) -> None:
    """Write the files of a model with a vocabulary of 50 tokens; no ``generation_config.json`` by default."""
    added = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    content = {
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0},
        "added_tokens": [{"id": index, "content": text, **added} for index, text in enumerate(SPECIAL)],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "vocab": {text: index for index, text in enumerate(VOCABULARY)},
            "merges": [[text[0], text[1]] for text in VOCABULARY[-4:]],
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    config = {"bos_token": "<s>", "eos_token": {"content": "<|end|>", "lstrip": False}}
    config |= {} if template is None else {"chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation), encoding="utf-8")
