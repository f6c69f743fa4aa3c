"""Networks of transformers (Hugging Face) with small configurations and random weights."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tools.zoo.networks import torchvision_operators  # noqa: F401  # transformers imports torchvision
from tools.zoo.networks.network import Inputs, Network, images

import transformers  # isort: skip  # after the operators of torchvision

LENGTH, VOCABULARY, WIDTH, HEADS, LAYERS = 16, 128, 64, 4, 2

NAMED = {"hidden_size": WIDTH, "num_attention_heads": HEADS, "num_hidden_layers": LAYERS}
"""Names of most configurations."""

ENCODER = {**NAMED, "intermediate_size": 2 * WIDTH, "vocab_size": VOCABULARY, "max_position_embeddings": 40}
DECODER = {**ENCODER, "num_key_value_heads": 2, "head_dim": WIDTH // HEADS, "pad_token_id": 0}
GPT2 = {"n_embd": WIDTH, "n_head": HEADS, "n_layer": LAYERS, "vocab_size": VOCABULARY, "n_positions": 40}
BART = {
    "d_model": WIDTH,
    "encoder_layers": LAYERS,
    "decoder_layers": LAYERS,
    "encoder_attention_heads": HEADS,
    "decoder_attention_heads": HEADS,
    "encoder_ffn_dim": 2 * WIDTH,
    "decoder_ffn_dim": 2 * WIDTH,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 40,
}
T5 = {
    "d_model": WIDTH,
    "d_kv": 16,
    "d_ff": 2 * WIDTH,
    "num_layers": LAYERS,
    "num_heads": HEADS,
    "vocab_size": VOCABULARY,
}
IMAGE = {**NAMED, "intermediate_size": 2 * WIDTH, "image_size": 64, "patch_size": 16, "num_labels": 10}
SPEECH = {
    **NAMED,
    "intermediate_size": 2 * WIDTH,
    "vocab_size": 32,
    "conv_dim": (32, 32, 32),
    "conv_kernel": (10, 3, 3),
    "conv_stride": (5, 2, 2),
    "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
}
STAGES = {
    "depths": [1, 1, 1, 1],
    "hidden_sizes": [16, 32, 64, 64],
    "num_attention_heads": [1, 2, 2, 4],
    "num_labels": 10,
}
MOE = {"num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": WIDTH}

TOKENS, IDS_AND_MASK, PAIR, PIXELS, WAVE = "tokens", "tokens and mask", "source and target", "image", "sound"


class Outputs(nn.Module):
    """A model with positional inputs and a tuple of tensors as result.

    Args:
        model: class of the model.
        settings: arguments of its configuration.
        reads: names of its inputs.
        results: attributes of its result.
    """

    def __init__(self, model: str, settings: dict[str, Any], reads: tuple[str, ...], results: tuple[str, ...]) -> None:
        super().__init__()
        kind = getattr(transformers, model)
        config = kind.config_class(**settings)
        config._attn_implementation = "eager"
        config._experts_implementation = "batched_mm"  # the default loops over the experts that tokens chose
        if hasattr(config, "use_cache"):
            config.use_cache = False
        self.body = kind(config)
        self.reads, self.results = reads, results

    def forward(self, *arguments: Tensor) -> tuple[Tensor, ...]:
        """Return the named results."""
        found = self.body(**dict(zip(self.reads, arguments, strict=True)), return_dict=True)
        return tuple(getattr(found, name) for name in self.results)


def tokens(batch: int) -> tuple[Tensor]:
    """Return token ids with repetitions, as text has."""
    few = torch.randint(3, VOCABULARY, (batch, 6))
    return (few.gather(1, torch.randint(0, 6, (batch, LENGTH))),)


def tokens_and_mask(batch: int) -> tuple[Tensor, Tensor]:
    """Return token ids and a mask that hides the end of the sequence."""
    lengths = torch.randint(LENGTH // 2, LENGTH + 1, (batch, 1))
    return (*tokens(batch), (torch.arange(LENGTH) < lengths).long())


def pair(batch: int) -> tuple[Tensor, Tensor]:
    """Return token ids of a source and of a target."""
    return (*tokens(batch), tokens(batch)[0][:, :8])


def sound(batch: int) -> tuple[Tensor]:
    """Return tones with noise."""
    time = torch.arange(1600) / 1600.0
    pitch, loud = 20 + 200 * torch.rand(batch, 3, 1), torch.rand(batch, 3, 1)
    return ((loud * torch.sin(6.2832 * pitch * time)).sum(1) + 0.05 * torch.randn(batch, 1600),)


def spectrogram(batch: int) -> tuple[Tensor, Tensor]:
    """Return a spectrogram of 80 bands and token ids."""
    return images(1, 80, 80)(batch)[0][:, 0], tokens(batch)[0][:, :8]


READS: dict[str, tuple[Inputs, tuple[str, ...]]] = {
    TOKENS: (tokens, ("input_ids",)),
    IDS_AND_MASK: (tokens_and_mask, ("input_ids", "attention_mask")),
    PAIR: (pair, ("input_ids", "decoder_input_ids")),
    PIXELS: (images(3, 64, 64), ("pixel_values",)),
    WAVE: (sound, ("input_values",)),
    "spectrogram": (spectrogram, ("input_features", "decoder_input_ids")),
    "image and tokens": (lambda batch: (*tokens(batch), *images(3, 64, 64)(batch)), ("input_ids", "pixel_values")),
    "image and noise": (lambda batch: (*images(3, 64, 64)(batch), torch.rand(batch, 16)), ("pixel_values", "noise")),
}

LOGITS, HIDDEN = ("logits",), ("last_hidden_state",)

FAMILIES: dict[str, tuple[str, dict[str, Any], str, tuple[str, ...]]] = {
    # family: (model, configuration, inputs, outputs)
    "albert": ("AlbertModel", {**ENCODER, "embedding_size": 32}, IDS_AND_MASK, HIDDEN),
    "bert": ("BertForSequenceClassification", ENCODER, IDS_AND_MASK, LOGITS),
    "bloom": (
        "BloomForCausalLM",
        {"hidden_size": WIDTH, "n_head": HEADS, "n_layer": LAYERS, "vocab_size": VOCABULARY},
        TOKENS,
        LOGITS,
    ),
    "convbert": ("ConvBertModel", {**ENCODER, "embedding_size": 32}, IDS_AND_MASK, HIDDEN),
    "deberta_v2": (
        "DebertaV2Model",
        {
            **ENCODER,
            "relative_attention": True,
            "pos_att_type": ["p2c", "c2p"],
            "position_buckets": 8,
            "share_att_key": True,
        },
        IDS_AND_MASK,
        HIDDEN,
    ),
    "distilbert": (
        "DistilBertModel",
        {
            "dim": WIDTH,
            "n_heads": HEADS,
            "n_layers": LAYERS,
            "hidden_dim": 2 * WIDTH,
            "vocab_size": VOCABULARY,
            "max_position_embeddings": 40,
        },
        IDS_AND_MASK,
        HIDDEN,
    ),
    "electra": ("ElectraModel", {**ENCODER, "embedding_size": 32}, IDS_AND_MASK, HIDDEN),
    "funnel": (
        "FunnelBaseModel",
        {
            "d_model": WIDTH,
            "n_head": HEADS,
            "d_head": 16,
            "d_inner": 2 * WIDTH,
            "block_sizes": [1, 1],
            "vocab_size": VOCABULARY,
        },
        IDS_AND_MASK,
        HIDDEN,
    ),
    "mobilebert": (
        "MobileBertModel",
        {**ENCODER, "embedding_size": 32, "intra_bottleneck_size": 32},
        IDS_AND_MASK,
        HIDDEN,
    ),
    "mpnet": ("MPNetModel", ENCODER, IDS_AND_MASK, HIDDEN),
    "modernbert": (
        "ModernBertModel",
        {**ENCODER, "pad_token_id": 0, "global_attn_every_n_layers": 2, "local_attention": 8},
        IDS_AND_MASK,
        HIDDEN,
    ),
    "fnet": ("FNetModel", ENCODER, TOKENS, HIDDEN),
    "roberta": ("RobertaModel", ENCODER, IDS_AND_MASK, HIDDEN),
    "squeezebert": ("SqueezeBertModel", {**ENCODER, "embedding_size": WIDTH}, IDS_AND_MASK, HIDDEN),
    "xlm_roberta": ("XLMRobertaModel", ENCODER, IDS_AND_MASK, HIDDEN),
    "gemma": ("GemmaForCausalLM", DECODER, TOKENS, LOGITS),
    "gemma2": ("Gemma2ForCausalLM", {**DECODER, "sliding_window": 8}, TOKENS, LOGITS),
    "gpt2": ("GPT2LMHeadModel", GPT2, TOKENS, LOGITS),
    "gpt_neo": (
        "GPTNeoForCausalLM",
        {
            "hidden_size": WIDTH,
            "num_heads": HEADS,
            "num_layers": LAYERS,
            "attention_types": [[["global", "local"], 1]],
            "window_size": 8,
            "vocab_size": VOCABULARY,
            "max_position_embeddings": 40,
        },
        TOKENS,
        LOGITS,
    ),
    "gpt_neox": ("GPTNeoXForCausalLM", ENCODER, TOKENS, LOGITS),
    "granite": ("GraniteForCausalLM", DECODER, TOKENS, LOGITS),
    "hf_llama": ("LlamaForCausalLM", DECODER, TOKENS, LOGITS),
    "mamba": (
        "MambaForCausalLM",
        {"hidden_size": 32, "num_hidden_layers": 1, "vocab_size": VOCABULARY, "state_size": 8},
        TOKENS,
        LOGITS,
    ),
    "mistral": ("MistralForCausalLM", {**DECODER, "sliding_window": 8}, TOKENS, LOGITS),
    "mixtral": ("MixtralForCausalLM", {**DECODER, **MOE}, TOKENS, LOGITS),
    "olmo2": ("Olmo2ForCausalLM", DECODER, TOKENS, LOGITS),
    "opt": ("OPTForCausalLM", {**ENCODER, "ffn_dim": 2 * WIDTH, "word_embed_proj_dim": WIDTH}, TOKENS, LOGITS),
    "phi": ("PhiForCausalLM", {**DECODER, "num_key_value_heads": HEADS}, TOKENS, LOGITS),
    "qwen2": ("Qwen2ForCausalLM", DECODER, TOKENS, LOGITS),
    "qwen3": ("Qwen3ForCausalLM", DECODER, TOKENS, LOGITS),
    "stablelm": ("StableLmForCausalLM", {**DECODER, "num_key_value_heads": HEADS}, TOKENS, LOGITS),
    "bart": ("BartForConditionalGeneration", BART, PAIR, LOGITS),
    "m2m": ("M2M100ForConditionalGeneration", BART, PAIR, LOGITS),
    "t5": ("T5ForConditionalGeneration", T5, PAIR, LOGITS),
    "hf_whisper": (
        "WhisperForConditionalGeneration",
        {
            **BART,
            "num_mel_bins": 80,
            "max_source_positions": 40,
            "max_target_positions": 40,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "decoder_start_token_id": 1,
        },
        "spectrogram",
        LOGITS,
    ),
    "hubert": ("HubertForCTC", SPEECH, WAVE, LOGITS),
    "wav2vec2": ("Wav2Vec2ForCTC", SPEECH, WAVE, LOGITS),
    "wavlm": ("WavLMForCTC", SPEECH, WAVE, LOGITS),
    "clip": (
        "CLIPModel",
        {"text_config": {**ENCODER, "eos_token_id": 2}, "vision_config": IMAGE, "projection_dim": 32},
        "image and tokens",
        ("text_embeds", "image_embeds"),
    ),
    "yolos": (
        "YolosForObjectDetection",
        {**IMAGE, "image_size": [64, 64], "num_detection_tokens": 8},
        PIXELS,
        ("logits", "pred_boxes"),
    ),
    "dinov2": ("Dinov2ForImageClassification", {**IMAGE, "mlp_ratio": 2}, PIXELS, LOGITS),
    "dpt": (
        "DPTForDepthEstimation",
        {
            **IMAGE,
            "num_hidden_layers": 4,
            "backbone_out_indices": [0, 1, 2, 3],
            "neck_hidden_sizes": [16, 16, 32, 32],
            "fusion_hidden_size": 16,
            "is_hybrid": False,
        },
        PIXELS,
        ("predicted_depth",),
    ),
    "glpn": ("GLPNForDepthEstimation", {**STAGES, "decoder_hidden_size": 16}, PIXELS, ("predicted_depth",)),
    "segformer": ("SegformerForSemanticSegmentation", {**STAGES, "decoder_hidden_size": 32}, PIXELS, LOGITS),
    "vit_mae": ("ViTMAEModel", {**IMAGE, "mask_ratio": 0.25}, "image and noise", HIDDEN),
}

NETWORKS = [
    Network(
        family,
        partial(Outputs, model, settings, READS[inputs][1], results),
        READS[inputs][0],
        READS[inputs][1],
        results,
        family=family.removeprefix("hf_"),
        package="transformers",
    )
    for family, (model, settings, inputs, results) in FAMILIES.items()
]
