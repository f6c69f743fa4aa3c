"""Image classifiers of timm (PyTorch Image Models), one small member of each family."""

from functools import partial
from typing import Any

from torch import nn

from tools.zoo.networks import torchvision_operators  # noqa: F401  # timm imports torchvision
from tools.zoo.networks.network import Network, images

import timm  # isort: skip  # after the operators of torchvision

CLASSES = 10

CONV = {
    # family: (model, extent of the image)
    "cspnext": ("cspnext_tiny", 64),
    "csatv2": ("csatv2", 128),
    "densenet": ("densenet121", 64),
    "dla": ("dla46_c", 64),
    "dpn": ("dpn48b", 64),
    "edgenext": ("edgenext_xx_small", 64),
    "efficientformer": ("efficientformer_l1", 224),
    "efficientnet_lite": ("efficientnet_lite0", 64),
    "efficientnetv2": ("efficientnetv2_rw_t", 64),
    "efficientvit_b": ("efficientvit_b0", 64),
    "fasternet": ("fasternet_t0", 64),
    "fbnetv3": ("fbnetv3_b", 64),
    "gernet": ("gernet_s", 64),
    "ghostnet": ("ghostnet_050", 64),
    "ghostnetv2": ("ghostnetv2_100", 64),
    "hardcorenas": ("hardcorenas_a", 64),
    "hgnetv2": ("hgnetv2_b0", 64),
    "hrnet": ("hrnet_w18_small", 64),
    "inception_next": ("inception_next_atto", 64),
    "inception_v3": ("inception_v3", 96),
    "lcnet": ("lcnet_050", 64),
    "mambaout": ("mambaout_femto", 64),
    "mixnet": ("tf_mixnet_s", 64),
    "mnasnet": ("mnasnet_050", 64),
    "mobilenetv1": ("mobilenetv1_100", 64),
    "mobilenetv2": ("mobilenetv2_050", 64),
    "mobilenetv4": ("mobilenetv4_conv_small_050", 64),
    "mobilenetv4_hybrid": ("mobilenetv4_hybrid_medium_075", 64),
    "mobileone": ("mobileone_s0", 64),
    "nfnet": ("eca_nfnet_l0", 64),
    "poolformer": ("poolformer_s12", 64),
    "regnetx": ("regnetx_002", 64),
    "regnety": ("regnety_002", 64),
    "repghost": ("repghostnet_050", 64),
    "repvgg": ("repvgg_a0", 64),
    "repvit": ("repvit_m0_9", 64),
    "res2net": ("res2net50_14w_8s", 64),
    "resnest": ("resnest14d", 64),
    "resnetv2": ("resnetv2_50", 64),
    "resnext": ("resnext26ts", 64),
    "rexnet": ("rexnet_100", 64),
    "selecsls": ("selecsls42b", 64),
    "senet": ("legacy_seresnet18", 64),
    "shvit": ("shvit_s1", 64),
    "skresnet": ("skresnet18", 64),
    "starnet": ("starnet_s1", 64),
    "swiftformer": ("swiftformer_xs", 64),
    "visformer": ("visformer_tiny", 224),
    "vovnet": ("ese_vovnet19b_slim_dw", 64),
    "xception": ("xception41", 96),
}

ATTENTION = {
    # family: (model, extent of the image)
    "beit": ("beit_base_patch16_224", 64),
    "botnet": ("botnet26t_256", 64),
    "cait": ("cait_xxs24_224", 64),
    "coat": ("coat_lite_tiny", 64),
    "coatnet": ("coatnet_nano_rw_224", 64),
    "convit": ("convit_tiny", 64),
    "crossvit": ("crossvit_9_240", 240),
    "davit": ("davit_tiny", 64),
    "deit": ("deit_tiny_distilled_patch16_224", 64),
    "efficientvit_m": ("efficientvit_m0", 224),
    "eva": ("eva02_tiny_patch14_224", 56),
    "fastvit": ("fastvit_t8", 64),
    "gcvit": ("gcvit_xxtiny", 224),
    "gmlp": ("gmlp_ti16_224", 64),
    "hiera": ("hiera_tiny_224", 224),
    "lambda_resnet": ("lambda_resnet26t", 64),
    "levit": ("levit_128s", 224),
    "maxvit": ("maxvit_pico_rw_256", 64),
    "mixer": ("mixer_s32_224", 64),
    "mobilevit": ("mobilevit_xxs", 64),
    "mobilevitv2": ("mobilevitv2_050", 64),
    "mvitv2": ("mvitv2_tiny", 64),
    "nest": ("nest_tiny", 64),
    "pit": ("pit_ti_224", 64),
    "pvt_v2": ("pvt_v2_b0", 64),
    "resmlp": ("resmlp_12_224", 64),
    "sequencer": ("sequencer2d_s", 64),
    "swinv2": ("swinv2_tiny_window8_256", 64),
    "tiny_vit": ("tiny_vit_5m_224", 64),
    "tnt": ("tnt_s_patch16_224", 64),
    "twins": ("twins_svt_small", 64),
    "vitamin": ("vitamin_small_224", 64),
    "volo": ("volo_d1_224", 64),
    "xcit": ("xcit_nano_12_p16_224", 64),
}

FOUR = {"depths": (1, 1, 2, 1)}
"""Few blocks in each of four stages."""

OPTIONS: dict[str, dict[str, Any]] = {
    # family: arguments of create_model, for models that have a fixed image size or no small member
    "beit": {"img_size": 64, "embed_dim": 96, "depth": 4, "num_heads": 3},
    "botnet": {"img_size": 64},
    "cait": {"img_size": 64, "depth": 4},
    "coat": {"img_size": 64},
    "coatnet": {"img_size": 64},
    "convit": {"img_size": 64, "depth": 4, "local_up_to_layer": 3},
    "davit": {**FOUR, "embed_dims": (32, 64, 128, 256), "num_heads": (1, 2, 4, 8)},
    "deit": {"img_size": 64, "depth": 4},
    "eva": {"img_size": 56, "depth": 4},
    "gmlp": {"img_size": 64},
    "maxvit": {"img_size": 64},
    "mixer": {"img_size": 64},
    "mvitv2": {"img_size": 64},
    "nest": {"img_size": 64},
    "nfnet": {"depths": (1, 1, 1, 1)},
    "pit": {"img_size": 64},
    "res2net": {"layers": (1, 1, 2, 1)},
    "resmlp": {"img_size": 64},
    "resnetv2": {"layers": (1, 1, 2, 1)},
    "sequencer": {"layers": (1, 1, 2, 1), "embed_dims": (48, 96, 96, 96)},
    "swinv2": {"img_size": 64, **FOUR, "embed_dim": 24, "num_heads": (1, 2, 4, 8)},
    "tnt": {"img_size": 64, "depth": 4},
    "twins": {"img_size": 64, **FOUR, "embed_dims": (32, 64, 128, 128)},
    "vitamin": {"img_size": 64, "depth": 2},
    "volo": {"img_size": 64},
}


def classifier(model: str, options: dict[str, Any]) -> nn.Module:
    """Return a model of timm with random weights."""
    return timm.create_model(model, pretrained=False, num_classes=CLASSES, exportable=True, **options)


NETWORKS = [
    Network(
        family,
        partial(classifier, model, OPTIONS.get(family, {})),
        images(3, extent, extent),
        ("image",),
        ("logits",),
        package="timm",
    )
    for family, (model, extent) in sorted((CONV | ATTENTION).items())
]
