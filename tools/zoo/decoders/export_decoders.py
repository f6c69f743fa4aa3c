"""Export the decoders, and store what transformers computes with each. Needs the extra ``zoo``."""

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tools.zoo.decoders import decoder_cases as names
from tools.zoo.decoders.decoder_cases import Case, cache_names
from tools.zoo.decoders.decoder_modules import VOCABULARY, Exported, model_of
from tools.zoo.decoders.grouped_query import build
from tools.zoo.making import first_line, quiet

TORCHSCRIPT_OPSET = 18


def make(folder: Path, chosen: Iterable[Case]) -> None:
    """Write the exports that do not exist, and the expected values of their families."""
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    folder.mkdir(parents=True, exist_ok=True)
    models: dict[str, Any] = {}
    for case in chosen:
        if case.family not in models:
            models[case.family] = model_of(case.family)
            with torch.no_grad():
                np.savez(folder / f"{case.family}.npz", **expected(models[case.family]))
        if case.path(folder).exists() or case.refusal_path(folder).exists():
            continue
        reason = export(models[case.family], case, case.path(folder))
        if reason:
            case.refusal_path(folder).write_text(reason + "\n", encoding="utf-8")
        print(f"{case.name}: {reason or 'made'}", flush=True)


def expected(model: Any) -> dict[str, Any]:
    """Return a prompt, the tokens that transformers generates, and its logits for all of them but the last.

    ``padded`` has the logits of the same tokens after some that the attention mask hides.
    """
    prompt = torch.randint(3, VOCABULARY, (1, names.PROMPT), generator=torch.Generator().manual_seed(1))
    tokens = prompt
    for _ in range(names.STEPS):
        best = model(tokens, use_cache=False).logits[:, -1:].argmax(-1)
        tokens = torch.cat((tokens, best), 1)
    logits = model(tokens[:, :-1], use_cache=False).logits
    wide = torch.cat((torch.full((1, names.PADDING), 5), tokens[:, :-1]), 1)
    mask = (torch.arange(wide.shape[1]) >= names.PADDING).long()[None]
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    padded = model(wide, attention_mask=mask, position_ids=positions, use_cache=False).logits
    return {
        "prompt": prompt.numpy(),
        "tokens": tokens[0, names.PROMPT :].numpy(),
        "logits": logits.numpy(),
        "padded": padded[:, names.PADDING :].numpy(),
    }


def export(model: Any, case: Case, path: Path) -> str:
    """Write an export. Return the reason if the exporter refuses the decoder."""
    unfinished = path.with_suffix(".unfinished")
    try:
        with quiet(), torch.no_grad():
            write(model, case, unfinished)
    except Exception as error:  # any exception of an exporter is a refusal
        unfinished.unlink(missing_ok=True)
        return first_line(error)
    unfinished.replace(path)
    return ""


def write(model: Any, case: Case, path: Path) -> None:
    """Write an export; exceptions come from the exporter."""
    if case.exporter == names.GROUPED:
        path.write_bytes(build(model, case.other_inputs).SerializeToString())
        return
    module = Exported(model, case.other_inputs, case.has_caches)
    past, present = cache_names(model.config.num_hidden_layers) if case.has_caches else ([], [])
    arguments = sample(case, model.config, len(past))
    total = "past_sequence_length + sequence_length" if past else "sequence_length"
    axes = {"input_ids": {1: "sequence_length"}, names.POSITIONS: {1: "sequence_length"}, names.MASK: {1: total}}
    axes |= {name: {2: "past_sequence_length"} for name in past}
    if case.batch == "open":
        axes = {name: {0: "batch_size", **rest} for name, rest in axes.items()}
    inputs = ["input_ids", *case.other_inputs, *past]
    settings: dict[str, Any] = {"input_names": inputs, "output_names": ["logits", *present]}
    if case.exporter == names.TORCHSCRIPT:
        results = {"logits": axes["input_ids"]} | {name: {**axes[inputs[-1]], 2: total} for name in present}
        settings["dynamic_axes"] = {name: axes[name] for name in inputs} | results
        torch.onnx.export(module, arguments, str(path), dynamo=False, opset_version=TORCHSCRIPT_OPSET, **settings)
        return
    is_named = case.exporter == names.NAMED
    plain = {"past_sequence_length + sequence_length": "total_sequence_length"}
    shapes = tuple(
        {axis: plain.get(said, said) if is_named else torch.export.Dim.DYNAMIC for axis, said in axes[name].items()}
        for name in inputs
    )
    program = torch.onnx.export(module, arguments, dynamo=True, dynamic_shapes=(shapes,), verbose=False, **settings)
    program.save(str(path), external_data=False)


def sample(case: Case, config: Any, caches: int) -> tuple[Tensor, ...]:
    """Return inputs of an export: its number of past tokens, of new tokens, and its batch are at least 2."""
    batch = 2 if case.batch == "open" else 1
    past, new = (5 if case.has_caches else 0), 3
    others = {
        names.MASK: torch.ones(batch, past + new, dtype=torch.long),
        names.POSITIONS: torch.arange(past, past + new)[None].repeat(batch, 1),
    }
    heads = config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    shape = batch, getattr(config, "num_key_value_heads", heads), past, size
    ids = torch.randint(3, VOCABULARY, (batch, new))
    return (ids, *(others[name] for name in case.other_inputs), *(torch.randn(shape) for _ in range(caches)))
