"""Small decoders of transformers with random weights and its default code, in the interface of exporters."""

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

if find_spec("torchvision"):  # transformers imports it if it is installed
    from tools.zoo.networks import torchvision_operators  # noqa: F401

import transformers  # isort: skip  # after the operators of torchvision

LAYERS, WIDTH, HEADS, GROUPS, VOCABULARY, CONTEXT = 2, 64, 4, 2, 128, 256

SETTINGS: dict[str, Any] = {
    "hidden_size": WIDTH,
    "num_attention_heads": HEADS,
    "num_key_value_heads": GROUPS,
    "head_dim": WIDTH // HEADS,
    "num_hidden_layers": LAYERS,
    "intermediate_size": 2 * WIDTH,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": CONTEXT,
    "pad_token_id": 0,
}
GPT2 = {"n_embd": WIDTH, "n_head": HEADS, "n_layer": LAYERS, "vocab_size": VOCABULARY, "n_positions": CONTEXT}

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", SETTINGS),
    "qwen3": ("Qwen3ForCausalLM", SETTINGS),
    "gemma": ("GemmaForCausalLM", SETTINGS),
    "phi": ("PhiForCausalLM", {**SETTINGS, "num_key_value_heads": HEADS}),
    "smollm": ("LlamaForCausalLM", {**SETTINGS, "tie_word_embeddings": True}),
    "gpt2": ("GPT2LMHeadModel", GPT2),
    "mixtral": ("MixtralForCausalLM", {**SETTINGS, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "smollm135m": (
        "LlamaForCausalLM",
        {
            **SETTINGS,
            "hidden_size": 576,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "head_dim": 64,
            "num_hidden_layers": 30,
            "intermediate_size": 1536,
            "vocab_size": 49152,
            "tie_word_embeddings": True,
        },
    ),
}
"""Class and configuration of each family. The last one has the shape of a public decoder, for measurements of time."""


def decoder_of(name: str, settings: dict[str, Any]) -> Any:
    """Return a decoder of a class of transformers with its initial weights."""
    torch.manual_seed(0)
    kind = getattr(transformers, name)
    config = kind.config_class(**settings)
    if name == "MixtralForCausalLM":
        config._experts_implementation = "batched_mm"  # the default loops over the experts that tokens chose
    return kind(config)


def model_of(family: str) -> Any:
    """Return a decoder with random weights. They are large enough that the greedy tokens differ."""
    model = decoder_of(*MODELS[family])
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=1.2 / parameter.shape[-1] ** 0.5)
            else:
                parameter.add_(0.1 * torch.randn(parameter.shape))
    return model.eval()


class Exported(nn.Module):
    """A decoder with tensors as positional inputs: ids, the other inputs, and the caches of each layer.

    Args:
        model: the decoder.
        others: names of the inputs between the ids and the caches.
        has_caches: True for caches as inputs and outputs.
    """

    def __init__(self, model: Any, others: tuple[str, ...], has_caches: bool) -> None:
        super().__init__()
        self.model, self.others, self.has_caches = model, others, has_caches

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return the logits, and the caches after the run."""
        named = dict(zip(("input_ids", *self.others), tensors, strict=False))
        if not self.has_caches:
            return (self.model(**named, use_cache=False).logits,)
        cache = transformers.DynamicCache()
        past = tensors[len(named) :]
        for layer in range(len(past) // 2):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        result = self.model(**named, past_key_values=cache, use_cache=True)
        parts = [part for layer in result.past_key_values.layers for part in (layer.keys, layer.values)]
        return (result.logits, *parts)
