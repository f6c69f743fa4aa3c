"""The order in which the optimizer tries its rules: stage by stage in this order, and in each stage from top to bottom.

At a node the engine applies the first rule that matches and does not decline. The position therefore matters only
between rules of one stage whose patterns have a root operator in common; these are grouped here. A comment gives the
reason where exchanging two rules was found to change a graph. Elsewhere the order only has to be fixed. A rule that is
not listed is tried after the listed rules of its stage.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

ORDER: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "canonicalize": (
            # Conversions of one node, which compete with no other rule.
            "spell_as_reshape",
            "permute_of_ones",
            "split_with_one_reader",
            "batches_as_rows",
            "remove_copy",
            # Reshape
            "meet_reshapes",
            # merge_reshapes before remove_same_shape: both nodes of a pair that cancels are removed at once.
            "merge_reshapes",
            "recognize_group_norm",
            "merge_pads",
            "remove_same_shape",
            "slice_of_concat",
            # Concat
            "join_of_all_parts",
            "join_of_slices",
            "merge_concats",
            "remove_single_concat",
            # Reduce
            "merge_reduces",
            "reduce_of_ones",
            # Cast
            # merge_casts before remove_same_cast: it looks at both casts of a pair.
            "merge_casts",
            "remove_same_cast",
            # Comparisons and selections
            "choice_of_negated",
            "choice_of_what_is_zero",
            "comparison_of_difference",
            "negated_comparison",
            # Element-wise arithmetic. constant_second before the rules that look for a constant as second operand, and
            # before spell_as_scalar, so that a norm sees its scale first.
            "extremum_of_same",
            "merge_differences",
            "merge_quotients",
            "constant_second",
            "gather_centred_value",
            "group_norm_with_bias",
            "group_norm_with_scale",
            "integer_product_with_zero",
            "layer_norm_with_bias",
            "layer_norm_with_scale",
            "merge_constants",
            "merge_factors",
            "merge_scalar_into_constant",
            "merge_shifts",
            "recognize_activation",
            "recognize_instance_norm",
            # recognize_layer_norm before recognize_rms_norm, whose pattern is contained in a layer norm.
            "recognize_layer_norm",
            "recognize_rms_norm",
            "remove_neutral_scalar",
            # The rules that fold a scale into a norm before spell_as_scalar, which would turn the scale into a scalar.
            "rms_norm_with_scale",
            "root_of_square",
            "shorten_repeated_constant",
            "spell_as_scalar",
            "sum_of_same",
            "tile_before_expansion",
            "tile_behind_function",
            "truth_of_truth",
        ),
        "layout": (
            "merge_permutes",
            "absorb_permute_into_weights",
            "sink_reshape_through_concat",
            "sink_through_concat",
            "sink_reshape_through_function",
            "sink_through_binary",
            "sink_through_unary",
            "sink_through_axes",
            "sink_through_reduce",
            "sink_through_split",
        ),
        "fold": (
            "fuse_dilated_convolution",
            "merge_pad_into_pooling",
            # Conv, deconv, matmul
            "fold_branches_into_product",
            "fold_into_product_behind",
            "fold_into_product_behind_flattening",
            # fold_into_product_behind_pad before merge_pad_into_convolution, which would remove the pad it looks for.
            "fold_into_product_behind_pad",
            "merge_pad_into_convolution",
            "space_to_depth_into_convolution",
            # Scales and biases after a linear operator
            "fold_into_joined_products",
            "fold_into_product_before",
            "fold_into_product_before_pad",
        ),
        "fuse": (
            # Reshape and other data movement
            "convolution_as_product",
            "drop_reduced_axes",
            "gate_as_convolutions",
            "product_as_convolution",
            "reshape_region",
            "shorten_moves",
            "permute_before_split",
            "reshape_before_split",
            # Matmul
            "recognize_attention",
            "transposed_left",
            "transposed_right",
            # Element-wise arithmetic
            "fuse_leaky_relu",
            "fuse_slopes_as_maximum",
            "sum_with_negative",
            "difference_with_negative",
            "product_as_quotient",
            "product_of_same",
            "quotient_by_root",
            "reciprocal_of_root",
            # Activations and limits
            "fuse_maximum_as_leaky_relu",
            # merge_limits before remove_useless_function: the result keeps the name of the last node.
            "merge_limits",
            "remove_useless_function",
            "spell_as_relu",
        ),
        "chip forms": (
            "axpy_as_sum",
            "normalization_as_product_and_sum",
            "reciprocal_as_quotient",
            "resize_without_interpolate",
            "rotation_as_slices",
            "rounding_as_activation",
            "shift_as_border",
            "softmax_as_quotient",
        ),
        "take apart": (
            "attention_in_pieces",
            "decompose_repeated_selection",
            "maximum_in_pieces",
        ),
        "prepare quantization": (
            "factor_as_depthwise",
            "mean_as_pooling",
            "normalization_as_depthwise",
            "product_with_bias",
        ),
    }
)
