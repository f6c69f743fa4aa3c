"""Rule -> its stage, its module, and sketches of its patterns, as ``optimizer.pattern`` has them.

Made by: .venv/bin/python tools/optimizer_rules.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tpuconvert.optimizer.pattern import Sketch

# fmt: off
RULES: dict[str, tuple[str, str, tuple[Sketch, ...]]] = {
    "absorb_permute_into_weights": ("layout", "rules.permutes", (
        (("MatrixMul",), ((("Reshape",), ((("Permute",), ("x",), (), ()),), (), ()), "W"), (), ()),
    )),
    "attention_in_pieces": ("take apart", "quantize.take_apart", (
        (("Attention",), (), (), ()),
    )),
    "axpy_as_sum": ("chip forms", "rules.forms", (
        (("Axpy",), ("x",), (), ()),
    )),
    "batches_as_rows": ("canonicalize", "rules.products", (
        (("BatchMatmul",), ("x", "W"), (), ()),
    )),
    "choice_of_negated": ("canonicalize", "rules.conditions", (
        (("ConditionSelect",), ((("Eqs",), ("c",), (), ()), "a", "b"), (), ()),
    )),
    "choice_of_what_is_zero": ("canonicalize", "rules.conditions", (
        (("ConditionSelect",), ((("Nes",), ("x",), (), ()), "a", "x"), (), ()),
        (("ConditionSelect",), ((("Eqs",), ("x",), (), ()), "x", "a"), (), ()),
    )),
    "comparison_of_difference": ("canonicalize", "rules.conditions", (
        (("Eqs", "Nes"), ((("Adds", "Rsubs", "Subs"), ("x",), (), ()),), (), ()),
    )),
    "constant_second": ("canonicalize", "rules.scalar_chains", (
        (("Add", "Mul"), ("C", "x"), (), ()),
    )),
    "convolution_as_product": ("fuse", "rules.products", (
        (("Reshape",), ((("Conv",), ((("Reshape",), ("x",), (), ()), "W", "B?"), (), ()),), (), ()),
    )),
    "decompose_repeated_selection": ("take apart", "quantize.take_apart", (
        (("IndexSelect",), ("x", "INDEX"), (), ()),
    )),
    "difference_with_negative": ("fuse", "rules.algebra", (
        (("Sub",), ("x", (("Muls", "Rsubs"), ("y",), (), ())), (), ()),
    )),
    "drop_reduced_axes": ("fuse", "rules.reduces", (
        (("Reshape",), ((("Reduce",), ("x",), (), ()),), (), ()),
    )),
    "extremum_of_same": ("canonicalize", "rules.algebra", (
        (("Max", "Min"), ("x", "x"), (), ()),
    )),
    "factor_as_depthwise": ("prepare quantization", "quantize.prepare", (
        (("Mul",), ("x", "K"), (), ()),
        (("Mul",), ("K", "x"), (), ()),
    )),
    "fold_branches_into_product": ("fold", "rules.scale_across", (
        (("Conv", "Conv3d", "Deconv", "MatrixMul"), ((("Concat",), (), (), ()), "W"), (), ()),
    )),
    "fold_into_joined_products": ("fold", "rules.scale_across", (
        (("BatchNorm", "Adds", "Divs", "Muls", "Rsubs", "Subs", "Add", "Div", "Mul", "Sub"), ((("Concat",), (), (),
            ()),), (), ()),
        (("BatchNorm", "Adds", "Divs", "Muls", "Rsubs", "Subs", "Add", "Div", "Mul", "Sub"), ("C", (("Concat",), (), (),
            ())), (), ()),
    )),
    "fold_into_product_before": ("fold", "rules.scale_after_product", (
        (("BatchNorm", "Adds", "Divs", "Muls", "Rsubs", "Subs", "Add", "Div", "Mul", "Sub"), ((("Conv", "Conv3d",
            "Deconv", "MatrixMul"), ("x", "W"), (), ()),), (), ()),
        (("BatchNorm", "Adds", "Divs", "Muls", "Rsubs", "Subs", "Add", "Div", "Mul", "Sub"), ("C", (("Conv", "Conv3d",
            "Deconv", "MatrixMul"), ("x", "W"), (), ())), (), ()),
        (("BatchNorm", "Adds", "Divs", "Muls", "Rsubs", "Subs", "Add", "Div", "Mul", "Sub"), ((("Reshape",), ((("Conv",
            "Conv3d", "Deconv", "MatrixMul"), ("x", "W"), (), ()),), (), ()),), (), ()),
        (("BatchNorm", "Adds", "Divs", "Muls", "Rsubs", "Subs", "Add", "Div", "Mul", "Sub"), ("C", (("Reshape",),
            ((("Conv", "Conv3d", "Deconv", "MatrixMul"), ("x", "W"), (), ()),), (), ())), (), ()),
    )),
    "fold_into_product_before_pad": ("fold", "rules.scale_across", (
        (("BatchNorm", "Adds", "Divs", "Muls", "Rsubs", "Subs", "Add", "Div", "Mul", "Sub"), ((("Pad",), ((("Conv",),
            ("x", "W"), (), ()),), (), ()),), (), ()),
        (("BatchNorm", "Adds", "Divs", "Muls", "Rsubs", "Subs", "Add", "Div", "Mul", "Sub"), ("C", (("Pad",),
            ((("Conv",), ("x", "W"), (), ()),), (), ())), (), ()),
    )),
    "fold_into_product_behind": ("fold", "rules.scale_before_product", (
        (("Conv", "Conv3d", "Deconv", "MatrixMul"), ((("BatchNorm", "Adds", "Divs", "Muls", "Rsubs", "Subs", "Add",
            "Div", "Mul", "Sub"), (), (), ()), "W"), (), ()),
        (("Conv", "Conv3d", "Deconv", "MatrixMul"), ((("Permute",), ((("BatchNorm", "Adds", "Divs", "Muls", "Rsubs",
            "Subs", "Add", "Div", "Mul", "Sub"), (), (), ()),), (), ()), "W"), (), ()),
    )),
    "fold_into_product_behind_flattening": ("fold", "rules.scale_across", (
        (("MatrixMul",), ((("Reshape",), ((("BatchNorm", "Adds", "Divs", "Muls", "Rsubs", "Subs", "Add", "Div", "Mul",
            "Sub"), (), (), ()),), (), ()), "W"), (), ()),
    )),
    "fold_into_product_behind_pad": ("fold", "rules.scale_across", (
        (("Conv",), ((("Pad",), ((("BatchNorm", "Adds", "Divs", "Muls", "Rsubs", "Subs", "Add", "Div", "Mul", "Sub"),
            (), (), ()),), (), ()), "W"), (), ()),
    )),
    "fuse_dilated_convolution": ("fold", "rules.dilated_convolution", (
        (("BatchToSpace",), ((("Conv",), ((("SpaceToBatch",), ("x",), (), ()), "W"), (), ()),), (), ()),
    )),
    "fuse_leaky_relu": ("fuse", "rules.leaky_relu", (
        (("Add",), ((("Active", "Maxs"), ("x",), (), ()), (("Muls",), ((("Mins",), ("x",), (), ()),), (), ())), (), ()),
        (("Add",), ((("Muls",), ((("Mins",), ("x",), (), ()),), (), ()), (("Active", "Maxs"), ("x",), (), ())), (), ()),
    )),
    "fuse_maximum_as_leaky_relu": ("fuse", "rules.leaky_relu", (
        (("Max",), ("x", (("Muls",), ("x",), (), ())), (), ()),
        (("Max",), ((("Muls",), ("x",), (), ()), "x"), (), ()),
    )),
    "fuse_slopes_as_maximum": ("fuse", "rules.leaky_relu", (
        (("Add",), ((("Active", "Maxs"), ("x",), (), ()), (("Mul",), ((("Mins",), ("x",), (), ()), "SLOPES"), (), ())),
            (), ()),
        (("Add",), ((("Mul",), ((("Mins",), ("x",), (), ()), "SLOPES"), (), ()), (("Active", "Maxs"), ("x",), (), ())),
            (), ()),
    )),
    "gate_as_convolutions": ("fuse", "rules.products", (
        (("Reshape",), ((("MatrixMul", "Active", "ActiveParam", "Adds", "Cast", "Ceil", "Clamp", "Copy", "Cos", "Divs",
            "Eqs", "Floor", "Ges", "Gts", "Les", "Lts", "Maxs", "Mins", "Muls", "Nes", "Rdivs", "Round", "Rsubs", "Sin",
            "Subs", "CompositeActivation"), (), (), ()),), (), ()),
    )),
    "gather_centred_value": ("canonicalize", "rules.shifted_mean", (
        (("Add",), ((("Mul",), ("x", "r"), (), ()), (("Sub",), ("b", (("Mul",), ((("Reduce",), ("x",), (), ()), "r"),
            (), ())), (), ())), (), ()),
        (("Add",), ((("Sub",), ("b", (("Mul",), ((("Reduce",), ("x",), (), ()), "r"), (), ())), (), ()), (("Mul",),
            ("x", "r"), (), ())), (), ()),
        (("Add",), ((("Mul",), ("x", "r"), (), ()), (("Sub",), ("b", (("Mul",), ("r", (("Reduce",), ("x",), (), ())),
            (), ())), (), ())), (), ()),
        (("Add",), ((("Sub",), ("b", (("Mul",), ("r", (("Reduce",), ("x",), (), ())), (), ())), (), ()), (("Mul",),
            ("x", "r"), (), ())), (), ()),
        (("Add",), ((("Mul",), ("r", "x"), (), ()), (("Sub",), ("b", (("Mul",), ((("Reduce",), ("x",), (), ()), "r"),
            (), ())), (), ())), (), ()),
        (("Add",), ((("Sub",), ("b", (("Mul",), ((("Reduce",), ("x",), (), ()), "r"), (), ())), (), ()), (("Mul",),
            ("r", "x"), (), ())), (), ()),
        (("Add",), ((("Mul",), ("r", "x"), (), ()), (("Sub",), ("b", (("Mul",), ("r", (("Reduce",), ("x",), (), ())),
            (), ())), (), ())), (), ()),
        (("Add",), ((("Sub",), ("b", (("Mul",), ("r", (("Reduce",), ("x",), (), ())), (), ())), (), ()), (("Mul",),
            ("r", "x"), (), ())), (), ()),
    )),
    "group_norm_with_bias": ("canonicalize", "rules.normalizations", (
        (("Add",), ((("GroupNorm",), ("x", "SCALE?"), (), ()), "C"), (), ()),
        (("Add",), ("C", (("GroupNorm",), ("x", "SCALE?"), (), ())), (), ()),
    )),
    "group_norm_with_scale": ("canonicalize", "rules.normalizations", (
        (("Mul",), ((("GroupNorm",), ("x",), (), ()), "C"), (), ()),
        (("Mul",), ("C", (("GroupNorm",), ("x",), (), ())), (), ()),
    )),
    "integer_product_with_zero": ("canonicalize", "rules.algebra", (
        (("Muls",), ("x",), (), ()),
    )),
    "join_of_all_parts": ("canonicalize", "rules.parts", (
        (("Concat",), ((("Split",), ("x",), (), ()),), (), ()),
    )),
    "join_of_slices": ("canonicalize", "rules.slices", (
        (("Concat",), (), ("Extract",), ()),
    )),
    "layer_norm_with_bias": ("canonicalize", "rules.layer_norm", (
        (("Add",), ((("LayerNorm",), ("x", "SCALE?"), (), ()), "C"), (), ()),
        (("Add",), ("C", (("LayerNorm",), ("x", "SCALE?"), (), ())), (), ()),
    )),
    "layer_norm_with_scale": ("canonicalize", "rules.layer_norm", (
        (("Mul",), ((("LayerNorm",), ("x",), (), ()), "C"), (), ()),
        (("Mul",), ("C", (("LayerNorm",), ("x",), (), ())), (), ()),
    )),
    "maximum_in_pieces": ("take apart", "quantize.take_apart", (
        (("Max",), ("x", (("Mul",), ("x", "SLOPES"), (), ())), (), ()),
    )),
    "mean_as_pooling": ("prepare quantization", "quantize.prepare", (
        (("Reduce",), ("x",), (), ()),
    )),
    "meet_reshapes": ("canonicalize", "rules.reshape_pairs", (
        (("Reshape",), ((("Active", "ActiveParam", "Adds", "Cast", "Ceil", "Clamp", "Copy", "Cos", "Divs", "Eqs",
            "Floor", "Ges", "Gts", "Les", "Lts", "Maxs", "Mins", "Muls", "Nes", "Rdivs", "Round", "Rsubs", "Sin",
            "Subs", "CompositeActivation"), (), (), ()),), (), ()),
    )),
    "merge_casts": ("canonicalize", "rules.casts", (
        (("Cast",), ((("Cast",), ("x",), (), ()),), (), ()),
    )),
    "merge_concats": ("canonicalize", "rules.parts", (
        (("Concat",), (), ("Concat",), ()),
    )),
    "merge_constants": ("canonicalize", "rules.scalar_chains", (
        (("Mul",), ((("Mul",), ("x", "A"), (), ()), "B"), (), ()),
        (("Add",), ((("Add",), ("x", "A"), (), ()), "B"), (), ()),
    )),
    "merge_differences": ("canonicalize", "rules.algebra", (
        (("Rsubs",), ((("Rsubs",), ("x",), (), ()),), (), ()),
    )),
    "merge_factors": ("canonicalize", "rules.scalar_chains", (
        (("Muls", "Divs"), ((("Muls", "Divs"), ("x",), (), ()),), (), ()),
    )),
    "merge_limits": ("fuse", "rules.clamp_chains", (
        (("Active", "Clamp", "Maxs", "Mins"), ((("Active", "Clamp", "Maxs", "Mins"), ("x",), (), ()),), (), ()),
    )),
    "merge_pad_into_convolution": ("fold", "rules.pads", (
        (("Conv",), ((("Pad",), ("x",), (), ()),), (), ()),
        (("Conv",), ((("Permute",), ((("Pad",), ("x",), (), ()),), (), ()),), (), ()),
    )),
    "merge_pad_into_pooling": ("fold", "rules.pads", (
        (("Pool",), ((("Pad",), ("x",), (), ()),), (), ()),
    )),
    "merge_pads": ("canonicalize", "rules.pads", (
        (("Pad",), ((("Pad",), ("x",), (), ()),), (), ()),
    )),
    "merge_permutes": ("layout", "rules.permutes", (
        (("Permute",), ((("Permute",), ("x",), (), ()),), (), ()),
    )),
    "merge_quotients": ("canonicalize", "rules.algebra", (
        (("Rdivs",), ((("Rdivs",), ("x",), (), ()),), (), ()),
    )),
    "merge_reduces": ("canonicalize", "rules.reduces", (
        (("Reduce",), ((("Reduce",), ("x",), (), ()),), (), ()),
    )),
    "merge_reshapes": ("canonicalize", "rules.identity", (
        (("Reshape",), ((("Reshape",), ("x",), (), ()),), (), ()),
    )),
    "merge_scalar_into_constant": ("canonicalize", "rules.scalar_chains", (
        (("Mul",), ((("Muls", "Divs"), ("x",), (), ()), "C"), (), ()),
        (("Add",), ((("Adds", "Subs"), ("x",), (), ()), "C"), (), ()),
        (("Muls", "Divs"), ((("Mul",), ("x", "C"), (), ()),), (), ()),
        (("Adds", "Subs"), ((("Add",), ("x", "C"), (), ()),), (), ()),
    )),
    "merge_shifts": ("canonicalize", "rules.scalar_chains", (
        (("Adds", "Subs"), ((("Adds", "Subs"), ("x",), (), ()),), (), ()),
    )),
    "negated_comparison": ("canonicalize", "rules.conditions", (
        (("Eqs",), ((("Eq", "Eqs", "Ne", "Nes"), (), (), ()),), (), ()),
    )),
    "normalization_as_depthwise": ("prepare quantization", "quantize.prepare", (
        (("BatchNorm",), ("x", "MEAN", "VAR", "GAMMA?", "BETA?"), (), ()),
    )),
    "normalization_as_product_and_sum": ("chip forms", "rules.forms", (
        (("BatchNorm",), ("x",), (), ()),
    )),
    "permute_before_split": ("fuse", "rules.moves_of_parts", (
        (("Split",), ("x",), (), ("Permute",)),
    )),
    "permute_of_ones": ("canonicalize", "rules.identity", (
        (("Permute",), ("x",), (), ()),
    )),
    "product_as_convolution": ("fuse", "rules.products", (
        (("Reshape",), ((("MatrixMul",), ((("Reshape",), ("x",), (), ()), "W", "B?"), (), ()),), (), ()),
    )),
    "product_as_quotient": ("fuse", "rules.algebra", (
        (("Mul",), ("x", (("Rdivs",), ("y",), (), ())), (), ()),
        (("Mul",), ((("Rdivs",), ("y",), (), ()), "x"), (), ()),
    )),
    "product_of_same": ("fuse", "rules.algebra", (
        (("Mul",), ("x", "x"), (), ()),
    )),
    "product_with_bias": ("prepare quantization", "quantize.prepare", (
        (("Conv", "Conv3d", "Deconv", "MatrixMul"), ("x", "W", "B?"), (), ()),
    )),
    "quotient_by_root": ("fuse", "rules.roots", (
        (("Div",), ("x", (("Active",), ("y",), (), ())), (), ()),
        (("Div",), ("x", (("Maxs",), ((("Active",), ("y",), (), ()),), (), ())), (), ()),
    )),
    "reciprocal_as_quotient": ("chip forms", "rules.forms", (
        (("Rdivs",), ("x",), (), ()),
    )),
    "reciprocal_of_root": ("fuse", "rules.algebra", (
        (("Rdivs",), ((("Active",), ("y",), (), ()),), (), ()),
    )),
    "recognize_activation": ("canonicalize", "rules.activation_functions", (
        (("Mul", "Add", "Div"), (), ("add", "div", "max", "min", "mul", "sub", "adds", "divs", "maxs", "mins", "muls",
            "rdivs", "rsubs", "subs", "active", "active_param", "clamp", "gts", "lts", "gelu", "hard_sigmoid",
            "hard_swish", "mish", "silu", "softplus"), ()),
        (("Muls", "Divs"), (), ("Mul",), ()),
        (("Active",), (), ("Adds",), ()),
    )),
    "recognize_attention": ("fuse", "rules.attention", (
        (("BatchMatmul",), ((("Softmax",), ("scores",), (), ()), "value"), (), ()),
        (("BatchMatmul",), ((("Div",), ((("Active",), ((("Sub",), ("scores", (("Maxs",), ((("Reduce",), ("scores",), (),
            ()),), (), ())), (), ()),), (), ()), (("Add",), ((("Reduce",), ((("Active",), ((("Sub",), ("scores",
            (("Maxs",), ((("Reduce",), ("scores",), (), ()),), (), ())), (), ()),), (), ()),), (), ()), (("Eqs",),
            ((("Reduce",), ((("Active",), ((("Sub",), ("scores", (("Maxs",), ((("Reduce",), ("scores",), (), ()),), (),
            ())), (), ()),), (), ()),), (), ()),), (), ())), (), ())), (), ()), "value"), (), ()),
        (("BatchMatmul",), ((("ConditionSelect",), ((("Ne",), ((("Softmax",), ("scores",), (), ()), (("Softmax",),
            ("scores",), (), ())), (), ()), "ZERO", (("Softmax",), ("scores",), (), ())), (), ()), "value"), (), ()),
    )),
    "recognize_group_norm": ("canonicalize", "rules.normalizations", (
        (("Reshape",), ((("LayerNorm",), ((("Reshape",), ("x",), (), ()),), (), ()),), (), ()),
    )),
    "recognize_instance_norm": ("canonicalize", "rules.normalizations", (
        (("Mul",), ((("LayerNorm",), ("x",), (), ()), "C"), (), ()),
        (("Mul",), ("C", (("LayerNorm",), ("x",), (), ())), (), ()),
    )),
    "recognize_layer_norm": ("canonicalize", "rules.layer_norm", (
        (("Mul",), ((("Sub",), ("x", (("Reduce",), ("x",), (), ())), (), ()), (("Active",), ((("Adds",), ((("Reduce",),
            ((("Active",), ((("Sub",), ("x", (("Reduce",), ("x",), (), ())), (), ()),), (), ()),), (), ()),), (), ()),),
            (), ())), (), ()),
        (("Mul",), ((("Active",), ((("Adds",), ((("Reduce",), ((("Active",), ((("Sub",), ("x", (("Reduce",), ("x",), (),
            ())), (), ()),), (), ()),), (), ()),), (), ()),), (), ()), (("Sub",), ("x", (("Reduce",), ("x",), (), ())),
            (), ())), (), ()),
        (("Div",), ((("Sub",), ("x", (("Reduce",), ("x",), (), ())), (), ()), (("Active",), ((("Adds",), ((("Reduce",),
            ((("Active",), ((("Sub",), ("x", (("Reduce",), ("x",), (), ())), (), ()),), (), ()),), (), ()),), (), ()),),
            (), ())), (), ()),
        (("Mul",), ((("Sub",), ("x", (("Reduce",), ("x",), (), ())), (), ()), (("Active",), ((("Adds",), ((("Reduce",),
            ((("Mul",), ((("Sub",), ("x", (("Reduce",), ("x",), (), ())), (), ()), (("Sub",), ("x", (("Reduce",),
            ("x",), (), ())), (), ())), (), ()),), (), ()),), (), ()),), (), ())), (), ()),
        (("Mul",), ((("Active",), ((("Adds",), ((("Reduce",), ((("Mul",), ((("Sub",), ("x", (("Reduce",), ("x",), (),
            ())), (), ()), (("Sub",), ("x", (("Reduce",), ("x",), (), ())), (), ())), (), ()),), (), ()),), (), ()),),
            (), ()), (("Sub",), ("x", (("Reduce",), ("x",), (), ())), (), ())), (), ()),
        (("Div",), ((("Sub",), ("x", (("Reduce",), ("x",), (), ())), (), ()), (("Active",), ((("Adds",), ((("Reduce",),
            ((("Mul",), ((("Sub",), ("x", (("Reduce",), ("x",), (), ())), (), ()), (("Sub",), ("x", (("Reduce",),
            ("x",), (), ())), (), ())), (), ()),), (), ()),), (), ()),), (), ())), (), ()),
    )),
    "recognize_rms_norm": ("canonicalize", "rules.normalizations", (
        (("Mul",), ("x", (("Active",), ((("Adds",), ((("Reduce",), ((("Active",), ("x",), (), ()),), (), ()),), (),
            ()),), (), ())), (), ()),
        (("Mul",), ((("Active",), ((("Adds",), ((("Reduce",), ((("Active",), ("x",), (), ()),), (), ()),), (), ()),),
            (), ()), "x"), (), ()),
        (("Div",), ("x", (("Active",), ((("Adds",), ((("Reduce",), ((("Active",), ("x",), (), ()),), (), ()),), (),
            ()),), (), ())), (), ()),
        (("Mul",), ("x", (("Active",), ((("Reduce",), ((("Active",), ("x",), (), ()),), (), ()),), (), ())), (), ()),
        (("Mul",), ((("Active",), ((("Reduce",), ((("Active",), ("x",), (), ()),), (), ()),), (), ()), "x"), (), ()),
        (("Div",), ("x", (("Active",), ((("Reduce",), ((("Active",), ("x",), (), ()),), (), ()),), (), ())), (), ()),
        (("Mul",), ("x", (("Active",), ((("Adds",), ((("Reduce",), ((("Mul",), ("x", "x"), (), ()),), (), ()),), (),
            ()),), (), ())), (), ()),
        (("Mul",), ((("Active",), ((("Adds",), ((("Reduce",), ((("Mul",), ("x", "x"), (), ()),), (), ()),), (), ()),),
            (), ()), "x"), (), ()),
        (("Div",), ("x", (("Active",), ((("Adds",), ((("Reduce",), ((("Mul",), ("x", "x"), (), ()),), (), ()),), (),
            ()),), (), ())), (), ()),
        (("Mul",), ("x", (("Active",), ((("Reduce",), ((("Mul",), ("x", "x"), (), ()),), (), ()),), (), ())), (), ()),
        (("Mul",), ((("Active",), ((("Reduce",), ((("Mul",), ("x", "x"), (), ()),), (), ()),), (), ()), "x"), (), ()),
        (("Div",), ("x", (("Active",), ((("Reduce",), ((("Mul",), ("x", "x"), (), ()),), (), ()),), (), ())), (), ()),
    )),
    "reduce_of_ones": ("canonicalize", "rules.reduces", (
        (("Reduce",), ("x",), (), ()),
    )),
    "remove_copy": ("canonicalize", "rules.identity", (
        (("Copy",), ("x",), (), ()),
    )),
    "remove_neutral_scalar": ("canonicalize", "rules.identity", (
        (("Adds", "Subs", "Muls", "Divs"), ("x",), (), ()),
    )),
    "remove_same_cast": ("canonicalize", "rules.casts", (
        (("Cast",), ("x",), (), ()),
    )),
    "remove_same_shape": ("canonicalize", "rules.identity", (
        (("broadcast", "extract", "pad", "repeat", "reshape", "tile"), ("x",), (), ()),
    )),
    "remove_single_concat": ("canonicalize", "rules.identity", (
        (("concat",), ("x",), (), ()),
    )),
    "remove_useless_function": ("fuse", "rules.useless_functions", (
        (("Active", "Clamp", "Maxs", "ceil", "floor", "round"), ("x",), (), ()),
    )),
    "reshape_before_split": ("fuse", "rules.moves_of_parts", (
        (("Split",), ("x",), (), ("Reshape",)),
    )),
    "reshape_region": ("fuse", "rules.reshaped_regions", (
        (("Reshape",), ("x",), (), ("Active", "ActiveParam", "Adds", "Cast", "Ceil", "Clamp", "Copy", "Cos", "Divs",
            "Eqs", "Floor", "Ges", "Gts", "Les", "Lts", "Maxs", "Mins", "Muls", "Nes", "Rdivs", "Round", "Rsubs", "Sin",
            "Subs", "CompositeActivation", "Add", "Div", "Eq", "Ge", "Gt", "Le", "Lt", "Max", "Min", "Mul", "Ne", "Sub",
            "Concat", "LayerNorm", "Reduce", "RmsNorm", "Softmax")),
    )),
    "resize_without_interpolate": ("chip forms", "rules.resize_forms", (
        (("Interpolate",), ("x",), (), ()),
    )),
    "rms_norm_with_scale": ("canonicalize", "rules.normalizations", (
        (("Mul",), ((("RmsNorm",), ("x",), (), ()), "C"), (), ()),
        (("Mul",), ("C", (("RmsNorm",), ("x",), (), ())), (), ()),
    )),
    "root_of_square": ("canonicalize", "rules.algebra", (
        (("Active",), ((("Active",), ("x",), (), ()),), (), ()),
    )),
    "rotation_as_slices": ("chip forms", "rules.forms", (
        (("Clshift", "Crshift"), ("x",), (), ()),
    )),
    "rounding_as_activation": ("chip forms", "rules.forms", (
        (("Ceil", "Floor", "Round"), ("x",), (), ()),
    )),
    "shift_as_border": ("chip forms", "rules.forms", (
        (("Lshift", "Rshift"), ("x",), (), ()),
    )),
    "shorten_moves": ("fuse", "rules.moves", (
        (("ChannelShuffle", "Copy", "ExpandDims", "Extract", "Permute", "Reshape", "Squeeze"), (), ("ChannelShuffle",
            "Copy", "ExpandDims", "Extract", "Permute", "Reshape", "Squeeze"), ()),
    )),
    "shorten_repeated_constant": ("canonicalize", "rules.tiles", (
        (("Add", "Div", "Eq", "Ge", "Gt", "Le", "Lt", "Max", "Min", "Mul", "Ne", "Sub"), ("C", "x"), (), ()),
        (("Add", "Div", "Eq", "Ge", "Gt", "Le", "Lt", "Max", "Min", "Mul", "Ne", "Sub"), ("x", "C"), (), ()),
    )),
    "sink_reshape_through_concat": ("layout", "rules.unit_reshapes", (
        (("Concat",), (), ("Reshape",), ()),
    )),
    "sink_reshape_through_function": ("layout", "rules.unit_reshapes", (
        (("Active", "ActiveParam", "Adds", "Cast", "Ceil", "Clamp", "Copy", "Cos", "Divs", "Eqs", "Floor", "Ges", "Gts",
            "Les", "Lts", "Maxs", "Mins", "Muls", "Nes", "Rdivs", "Round", "Rsubs", "Sin", "Subs",
            "CompositeActivation", "Add", "Div", "Eq", "Ge", "Gt", "Le", "Lt", "Max", "Min", "Mul", "Ne", "Sub"), (),
            ("Reshape",), ()),
    )),
    "sink_through_axes": ("layout", "rules.permutes", (
        (("Extract", "Pad", "Softmax", "Tile"), ((("Permute",), ("x",), (), ()),), (), ()),
    )),
    "sink_through_binary": ("layout", "rules.permutes", (
        (("Add", "Div", "Eq", "Ge", "Gt", "Le", "Lt", "Max", "Min", "Mul", "Ne", "Sub"), ((("Permute",), ("x",), (),
            ()),), (), ()),
        (("Add", "Div", "Eq", "Ge", "Gt", "Le", "Lt", "Max", "Min", "Mul", "Ne", "Sub"), ("y", (("Permute",), ("x",),
            (), ())), (), ()),
    )),
    "sink_through_concat": ("layout", "rules.permutes", (
        (("Concat",), (), ("Permute",), ()),
    )),
    "sink_through_reduce": ("layout", "rules.permutes", (
        (("Reduce",), ((("Permute",), ("x",), (), ()),), (), ()),
    )),
    "sink_through_split": ("layout", "rules.permutes", (
        (("Split",), ((("Permute",), ("x",), (), ()),), (), ()),
    )),
    "sink_through_unary": ("layout", "rules.permutes", (
        (("Active", "ActiveParam", "Adds", "Cast", "Ceil", "Clamp", "Copy", "Cos", "Divs", "Eqs", "Floor", "Ges", "Gts",
            "Les", "Lts", "Maxs", "Mins", "Muls", "Nes", "Rdivs", "Round", "Rsubs", "Sin", "Subs",
            "CompositeActivation"), ((("Permute",), ("x",), (), ()),), (), ()),
    )),
    "slice_of_concat": ("canonicalize", "rules.slices", (
        (("Extract",), ((("Concat",), (), (), ()),), (), ()),
    )),
    "softmax_as_quotient": ("chip forms", "rules.forms", (
        (("Softmax",), ("x",), (), ()),
    )),
    "space_to_depth_into_convolution": ("fold", "rules.space_to_depth", (
        (("Conv",), ((("Concat", "Permute", "Reshape"), (), (), ()), "W"), (), ()),
    )),
    "spell_as_relu": ("fuse", "rules.clamp_chains", (
        (("Maxs",), ("x",), (), ()),
    )),
    "spell_as_reshape": ("canonicalize", "rules.identity", (
        (("Squeeze", "ExpandDims"), ("x",), (), ()),
    )),
    "spell_as_scalar": ("canonicalize", "rules.scalar_chains", (
        (("Add", "Div", "Max", "Min", "Mul", "Sub"), ("C", "x"), (), ()),
        (("Add", "Div", "Max", "Min", "Mul", "Sub"), ("x", "C"), (), ()),
    )),
    "split_with_one_reader": ("canonicalize", "rules.parts", (
        (("Split",), ("x",), (), ()),
    )),
    "sum_of_same": ("canonicalize", "rules.algebra", (
        (("Add",), ("x", "x"), (), ()),
    )),
    "sum_with_negative": ("fuse", "rules.algebra", (
        (("Add",), ("x", (("Muls", "Rsubs"), ("y",), (), ())), (), ()),
        (("Add",), ((("Muls", "Rsubs"), ("y",), (), ()), "x"), (), ()),
    )),
    "tile_before_expansion": ("canonicalize", "rules.tiles", (
        (("Add", "Div", "Eq", "Ge", "Gt", "Le", "Lt", "Max", "Min", "Mul", "Ne", "Sub"), (), ("Broadcast", "Repeat",
            "Tile"), ()),
    )),
    "tile_behind_function": ("canonicalize", "rules.tiles", (
        (("Active", "ActiveParam", "Adds", "Cast", "Ceil", "Clamp", "Copy", "Cos", "Divs", "Eqs", "Floor", "Ges", "Gts",
            "Les", "Lts", "Maxs", "Mins", "Muls", "Nes", "Rdivs", "Round", "Rsubs", "Sin", "Subs",
            "CompositeActivation", "Add", "Div", "Eq", "Ge", "Gt", "Le", "Lt", "Max", "Min", "Mul", "Ne", "Sub",
            "ConditionSelect"), (), ("Broadcast", "Repeat", "Tile"), ()),
    )),
    "transposed_left": ("fuse", "rules.transposed_operands", (
        (("BatchMatmul",), ((("Permute",), ("a",), (), ()), "b"), (), ()),
    )),
    "transposed_right": ("fuse", "rules.transposed_operands", (
        (("BatchMatmul",), ("a", (("Permute",), ("b",), (), ())), (), ()),
    )),
    "truth_of_truth": ("canonicalize", "rules.conditions", (
        (("Nes",), ("x",), (), ()),
    )),
}
