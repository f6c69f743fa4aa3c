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
            "convert_squeeze_to_reshape",
            "convert_unit_permute_to_reshape",
            "convert_split_to_extract",
            "convert_batch_matmul_to_matmul",
            "decompose_hard_sigmoid",
            "remove_copy",
            # Reshape
            "hoist_unary_chain_above_reshape",
            # merge_reshapes before remove_shape_noop: both nodes of a pair that cancels are removed at once.
            "merge_reshapes",
            "recognize_group_norm",
            "merge_pads",
            "remove_shape_noop",
            "hoist_slice_above_concat",
            # Concat
            "remove_concat_of_split",
            "merge_adjacent_slices",
            "merge_concats",
            "remove_single_concat",
            # Reduce
            "merge_reduces",
            "remove_unit_reduce",
            # Cast
            # merge_casts before remove_same_cast: it considers both casts of a pair.
            "merge_casts",
            "remove_same_cast",
            # Comparisons and selections
            "swap_select_branches",
            "replace_select_branch_by_zero",
            "fold_offset_into_comparison",
            "fold_negation_into_comparison",
            # Element-wise arithmetic. move_constant_second before the rules that expect the constant as second operand,
            # and before convert_uniform_constant_to_scalar, so that a norm sees its scale first.
            "remove_self_min_max",
            "merge_rsubs",
            "merge_rdivs",
            "move_constant_second",
            "factor_out_centered_value",
            "fold_bias_into_group_norm",
            "fold_scale_into_group_norm",
            "fold_integer_multiply_by_zero",
            "fold_bias_into_layer_norm",
            "fold_scale_into_layer_norm",
            "merge_constants",
            "merge_scalar_multiplies",
            "fold_scalar_into_constant",
            "merge_scalar_adds",
            "recognize_activation",
            "recognize_instance_norm",
            # recognize_layer_norm before recognize_rms_norm, whose pattern is contained in a layer norm.
            "recognize_layer_norm",
            "recognize_rms_norm",
            "remove_neutral_scalar",
            # fold_scale_into_rms_norm before convert_uniform_constant_to_scalar, which would replace the scale by a
            # scalar.
            "fold_scale_into_rms_norm",
            "replace_sqrt_of_square_by_abs",
            "shrink_repeated_constant",
            "convert_uniform_constant_to_scalar",
            "replace_self_add_by_muls",
            "remove_tile_before_broadcast",
            "sink_tile_through_elementwise",
            "remove_boolean_test",
        ),
        "layout": (
            "merge_permutes",
            "fold_permute_into_weights",
            "sink_reshape_through_concat",
            "sink_permute_through_concat",
            "sink_reshape_through_elementwise",
            "sink_permute_through_binary",
            "sink_permute_through_unary",
            "sink_permute_through_axis_op",
            "sink_permute_through_reduce",
            "sink_permute_through_split",
        ),
        "fold": (
            "fuse_dilated_conv",
            "fold_pad_into_pool",
            # Conv, deconv, matmul
            "fold_branch_scales_into_linear",
            "fold_scale_into_next_linear",
            "fold_scale_through_flatten",
            # fold_scale_into_conv_after_pad before fold_pad_into_conv, which would remove the pad that its pattern
            # requires.
            "fold_scale_into_conv_after_pad",
            "fold_pad_into_conv",
            "fold_space_to_depth_into_conv",
            # Scales and biases after a linear operator
            "fold_scale_through_concat",
            "fold_scale_into_previous_linear",
            "fold_scale_into_conv_before_pad",
        ),
        "fuse": (
            # Reshape and other data movement
            "convert_conv1x1_to_matmul",
            "fold_reshape_into_reduce",
            "convert_gate_matmuls_to_conv1x1",
            "convert_matmul_to_conv1x1",
            "move_region_across_reshape",
            "simplify_data_movement",
            "hoist_permute_above_split",
            "hoist_reshape_above_split",
            # Matmul
            "recognize_attention",
            "fold_permute_into_left_operand",
            "fold_permute_into_right_operand",
            # Element-wise arithmetic
            "fuse_leaky_relu",
            "fuse_prelu_as_max",
            "fuse_negation_into_sub",
            "fuse_negation_into_add",
            "fuse_reciprocal_into_div",
            "replace_self_multiply_by_square",
            "replace_div_by_sqrt_by_rsqrt",
            "fuse_reciprocal_sqrt",
            # Activations and limits
            "fuse_max_as_leaky_relu",
            # merge_clamps before remove_redundant_activation: the result keeps the name of the last node.
            "merge_clamps",
            "remove_redundant_activation",
            "replace_max_by_relu",
        ),
        "chip lowering": (
            "lower_axpy_to_mul_add",
            "lower_batch_norm_to_mul_add",
            "lower_rdivs_to_div",
            "lower_interpolate",
            "lower_symbolic_resize",
            "lower_channel_rotation_to_slices",
            "lower_rounding_to_activation",
            "lower_channel_shift_to_pad",
            "lower_softmax_to_exp_div",
        ),
        "decompose": (
            "decompose_attention",
            "decompose_repeated_selection",
            "decompose_prelu",
        ),
        "prepare quantization": (
            "convert_symbolic_batch_matmul_and_bias",  # before the rule that leaves the bias
            "convert_symbolic_batch_matmul",
            "hoist_unary_above_symbolic_reshape",
            "remove_symbolic_reshape_and_inverse",
            "convert_scale_to_depthwise",
            "convert_mean_to_pool",
            "convert_batch_norm_to_depthwise",
            "move_computed_bias_to_add",  # before the rule that adds a constant one
            "add_zero_bias",
        ),
    }
)
