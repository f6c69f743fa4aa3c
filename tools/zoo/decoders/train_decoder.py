"""Train a small Llama of transformers in minutes, and export it. Needs the extra ``zoo``.

The folder gets ``decoder.onnx``, ``tokenizer.json``, and ``tokens.npz`` with the tokens of both parts of the text.
"""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

from tools.zoo.decoders import decoder_cases as names
from tools.zoo.decoders.decoder_cases import Case
from tools.zoo.decoders.decoder_modules import decoder_of
from tools.zoo.decoders.export_decoders import write
from tools.zoo.decoders.library_text import read_library_text
from tools.zoo.making import quiet

VOCABULARY, END = 1024, "<|end|>"

SETTINGS: dict[str, Any] = {
    "hidden_size": 192,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "num_hidden_layers": 4,
    "intermediate_size": 384,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 1024,
    "tie_word_embeddings": True,
}
"""1.5 million weights."""

BATCH, LENGTH = 8, 128
"""Sequences of a step, and tokens of each."""

_RATE, _WARM_UP = 4e-3, 40
"""Largest learning rate, and steps until it is reached."""


def train(folder: Path, steps: int) -> None:
    """Train a decoder on the sources of Python's standard library, and write it with its tokens."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer(read_library_text().training)
    tokenizer.save(str(folder / "tokenizer.json"))
    tokens = write_tokens(tokenizer, tokenizer.token_to_id(END), folder)
    model = decoder_of("LlamaForCausalLM", SETTINGS)
    print(f"{sum(parameter.numel() for parameter in model.parameters()) / 1e6:.2f} million weights", flush=True)
    fit(model, torch.from_numpy(tokens.astype(np.int64)), steps)
    export_decoder(model, folder)


def read_gguf(path: Path, folder: Path) -> None:
    """Write the decoder of a GGUF file and its tokens for the same text. Needs the packages gguf and accelerate."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = {"gguf_file": path.name}
    tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, **parts).backend_tokenizer
    tokenizer.save(str(folder / "tokenizer.json"))
    write_tokens(tokenizer, tokenizer.token_to_id("<|endoftext|>"), folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(path.parent, dtype=torch.float32, **parts)
    export_decoder(model.eval(), folder)


def train_tokenizer(texts: Iterable[str]) -> Any:
    """Return a tokenizer of byte pairs."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def write_tokens(tokenizer: Any, end: int, folder: Path) -> Any:
    """Write the tokens of both parts of the text, with a token after each file. Return the ones of the training."""
    tokens: dict[str, Any] = {}
    for part, texts in read_library_text()._asdict().items():
        rows = [[*encoding.ids, end] for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]
        tokens[part] = np.concatenate([np.array(row, np.uint32) for row in rows])
        print(f"{len(tokens[part])} tokens of {part}", flush=True)
    np.savez_compressed(folder / "tokens.npz", **tokens)
    return tokens["training"]


def fit(model: Any, tokens: Tensor, steps: int) -> None:
    """Train a decoder on random parts of the tokens. The learning rate follows a cosine after a linear start."""
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=_RATE, betas=(0.9, 0.95), weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, steps))
    model.train()
    for step in range(steps):
        starts = torch.randint(0, len(tokens) - LENGTH, (BATCH, 1), generator=generator)
        ids = tokens[starts + torch.arange(LENGTH)]
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        if step % 50 == 0 or step == steps - 1:
            print(f"step {step}: perplexity of the batch {math.exp(loss.item()):.2f}", flush=True)
    model.eval()


def _rate(step: int, steps: int) -> float:
    """Return the learning rate of a step as a share of the largest one."""
    warm = min(1.0, (step + 1) / _WARM_UP)
    return warm * (0.05 + 0.95 * (1 + math.cos(math.pi * step / steps)) / 2)


def export_decoder(model: Any, folder: Path) -> None:
    """Write ``decoder.onnx`` by the TorchScript exporter, with ``attention_mask`` and caches."""
    case = Case("llama", names.TORCHSCRIPT, "mask", "one", "caches")
    with quiet(), torch.no_grad():
        write(model, case, folder / "decoder.onnx")
