"""The tables of a TFLite file: the schema for the verifier, and the option fields for converters.

Source: the public schema of TensorFlow Lite, as the ``tflite`` package 2.18 states it (a test compares the two, slot by
slot). ``tensorflow/lite/schema/schema.fbs``.
"""

from tpuconvert.schema.flatbuffer_schema import Schema

IDENTIFIER = b"TFL3"

_MODEL = {
    "Model": (
        "version:u32 operator_codes:[OperatorCode] subgraphs:[SubGraph] description:str buffers:[Buffer] "
        "metadata_buffer:[i32] metadata:[Metadata] signature_defs:[SignatureDef]"
    ),
    "OperatorCode": "deprecated_builtin_code:i8 custom_code:str version:i32=1 builtin_code:i32",
    "SubGraph": "tensors:[Tensor] inputs:[i32] outputs:[i32] operators:[Operator] name:str debug_metadata_index:i32=-1",
    "Tensor": (
        "shape:[i32] type:i8 buffer:u32 name:str quantization:QuantizationParameters is_variable:bool "
        "sparsity:SparsityParameters shape_signature:[i32] has_rank:bool variant_tensors:[VariantSubType]"
    ),
    "QuantizationParameters": (
        "min:[f32] max:[f32] scale:[f32] zero_point:[i64] details:<QuantizationDetails> quantized_dimension:i32"
    ),
    "CustomQuantization": "custom:[u8]",
    "SparsityParameters": "traversal_order:[i32] block_map:[i32] dim_metadata:[DimensionMetadata]",
    "DimensionMetadata": (
        "format:i8 dense_size:i32 array_segments:<SparseIndexVector> array_indices:<SparseIndexVector>"
    ),
    "Int32Vector": "values:[i32]",
    "Uint16Vector": "values:[u16]",
    "Uint8Vector": "values:[u8]",
    "VariantSubType": "shape:[i32] type:i8 has_rank:bool",
    "Operator": (
        "opcode_index:u32 inputs:[i32] outputs:[i32] builtin_options:<BuiltinOptions> custom_options:[u8] "
        "custom_options_format:i8 mutating_variable_inputs:[bool] intermediates:[i32] "
        "large_custom_options_offset:u64 large_custom_options_size:u64 builtin_options2:<BuiltinOptions2> "
        "debug_metadata_index:i32=-1"
    ),
    "Buffer": "data:[u8] offset:u64 size:u64",
    "Metadata": "name:str buffer:u32",
    "SignatureDef": "inputs:[TensorMap] outputs:[TensorMap] signature_key:str _ subgraph_index:u32",
    "TensorMap": "name:str tensor_index:u32",
}

_OPTIONS = {
    "AddOptions": "fused_activation_function:i8 pot_scale_int16:bool=true",
    "ArgMaxOptions": "output_type:i8",
    "ArgMinOptions": "output_type:i8",
    "BatchMatMulOptions": "adj_x:bool adj_y:bool asymmetric_quantize_inputs:bool",
    "BidirectionalSequenceLSTMOptions": (
        "fused_activation_function:i8 cell_clip:f32 proj_clip:f32 merge_outputs:bool time_major:bool=true "
        "asymmetric_quantize_inputs:bool"
    ),
    "BidirectionalSequenceRNNOptions": (
        "time_major:bool fused_activation_function:i8 merge_outputs:bool asymmetric_quantize_inputs:bool"
    ),
    "BucketizeOptions": "boundaries:[f32]",
    "CallOnceOptions": "init_subgraph_index:i32",
    "CallOptions": "subgraph:u32",
    "CastOptions": "in_data_type:i8 out_data_type:i8",
    "ConcatEmbeddingsOptions": "num_channels:i32 num_columns_per_channel:[i32] embedding_dim_per_channel:[i32]",
    "ConcatenationOptions": "axis:i32 fused_activation_function:i8",
    "Conv2DOptions": (
        "padding:i8 stride_w:i32 stride_h:i32 fused_activation_function:i8 dilation_w_factor:i32=1 "
        "dilation_h_factor:i32=1 quantized_bias_type:i8"
    ),
    "Conv3DOptions": (
        "padding:i8 stride_d:i32 stride_w:i32 stride_h:i32 fused_activation_function:i8 "
        "dilation_d_factor:i32=1 dilation_w_factor:i32=1 dilation_h_factor:i32=1"
    ),
    "CumsumOptions": "exclusive:bool reverse:bool",
    "DepthToSpaceOptions": "block_size:i32",
    "DepthwiseConv2DOptions": (
        "padding:i8 stride_w:i32 stride_h:i32 depth_multiplier:i32 fused_activation_function:i8 "
        "dilation_w_factor:i32=1 dilation_h_factor:i32=1"
    ),
    "DivOptions": "fused_activation_function:i8",
    "EmbeddingLookupSparseOptions": "combiner:i8",
    "FakeQuantOptions": "min:f32 max:f32 num_bits:i32 narrow_range:bool",
    "FullyConnectedOptions": (
        "fused_activation_function:i8 weights_format:i8 keep_num_dims:bool asymmetric_quantize_inputs:bool "
        "quantized_bias_type:i8"
    ),
    "GatherOptions": "axis:i32 batch_dims:i32",
    "GeluOptions": "approximate:bool",
    "HashtableOptions": "table_id:i32 key_dtype:i8 value_dtype:i8",
    "IfOptions": "then_subgraph_index:i32 else_subgraph_index:i32",
    "L2NormOptions": "fused_activation_function:i8",
    "LSHProjectionOptions": "type:i8",
    "LSTMOptions": (
        "fused_activation_function:i8 cell_clip:f32 proj_clip:f32 kernel_type:i8 asymmetric_quantize_inputs:bool"
    ),
    "LeakyReluOptions": "alpha:f32",
    "LocalResponseNormalizationOptions": "radius:i32 bias:f32 alpha:f32 beta:f32",
    "MirrorPadOptions": "mode:i8",
    "MulOptions": "fused_activation_function:i8",
    "OneHotOptions": "axis:i32",
    "PackOptions": "values_count:i32 axis:i32",
    "Pool2DOptions": (
        "padding:i8 stride_w:i32 stride_h:i32 filter_width:i32 filter_height:i32 fused_activation_function:i8"
    ),
    "RNNOptions": "fused_activation_function:i8 asymmetric_quantize_inputs:bool",
    "RandomOptions": "seed:i64 seed2:i64",
    "ReduceWindowOptions": "reduce_function:i32",
    "ReducerOptions": "keep_dims:bool",
    "ReshapeOptions": "new_shape:[i32]",
    "ResizeBilinearOptions": "_ _ align_corners:bool half_pixel_centers:bool",
    "ResizeNearestNeighborOptions": "align_corners:bool half_pixel_centers:bool",
    "ReverseSequenceOptions": "seq_dim:i32 batch_dim:i32",
    "SVDFOptions": "rank:i32 fused_activation_function:i8 asymmetric_quantize_inputs:bool",
    "SequenceRNNOptions": "time_major:bool fused_activation_function:i8 asymmetric_quantize_inputs:bool",
    "ShapeOptions": "out_type:i8",
    "SkipGramOptions": "ngram_size:i32 max_skip_size:i32 include_all_ngrams:bool",
    "SoftmaxOptions": "beta:f32",
    "SpaceToDepthOptions": "block_size:i32",
    "SparseToDenseOptions": "validate_indices:bool",
    "SplitOptions": "num_splits:i32",
    "SplitVOptions": "num_splits:i32",
    "SqueezeOptions": "squeeze_dims:[i32]",
    "StableHLOCompositeOptions": (
        "name:str decomposition_subgraph_index:i32 composite_attributes:[u8] composite_attributes_format:i8 version:i32"
    ),
    "StablehloBroadcastInDimOptions": "broadcast_dimensions:[i64]",
    "StablehloCompareOptions": "comparison_direction:u32 compare_type:u32",
    "StablehloConcatenateOptions": "dimension:i64",
    "StablehloConvolutionOptions": (
        "window_strides:[i64] padding:[i64] lhs_dilation:[i64] rhs_dilation:[i64] window_reversal:[bool] "
        "input_batch_dimension:i64 input_feature_dimension:i64 input_spatial_dimensions:[i64] "
        "kernel_input_feature_dimension:i64 kernel_output_feature_dimension:i64 "
        "kernel_spatial_dimensions:[i64] output_batch_dimension:i64 output_feature_dimension:i64 "
        "output_spatial_dimensions:[i64] feature_group_count:i64 batch_group_count:i64 precision_config:[u32]"
    ),
    "StablehloCustomCallOptions": (
        "call_target_name:str has_side_effect:bool backend_config:str api_version:i32 "
        "called_computations:[i32] custom_attributes:[u8]"
    ),
    "StablehloDotGeneralOptions": (
        "lhs_batching_dimensions:[i64] rhs_batching_dimensions:[i64] lhs_contracting_dimensions:[i64] "
        "rhs_contracting_dimensions:[i64] precision_config:[u32]"
    ),
    "StablehloDynamicSliceOptions": "slice_sizes:[i64]",
    "StablehloGatherOptions": (
        "offset_dims:[i64] collapsed_slice_dims:[i64] start_index_map:[i64] index_vector_dim:i64 "
        "slice_sizes:[i64] indices_are_sorted:bool"
    ),
    "StablehloIotaOptions": "iota_dimension:i64",
    "StablehloPadOptions": "edge_padding_low:[i64] edge_padding_high:[i64] interior_padding:[i64]",
    "StablehloReduceOptions": "dimensions:[i64] body_subgraph_index:i32",
    "StablehloReduceWindowOptions": (
        "window_dimensions:[i64] window_strides:[i64] base_dilations:[i64] window_dilations:[i64] "
        "padding:[i64] body_subgraph_index:i32"
    ),
    "StablehloRngBitGeneratorOptions": "algorithm:i8",
    "StablehloScatterOptions": (
        "indices_are_sorted:bool update_window_dims:[i64] inserted_window_dims:[i64] "
        "scatter_dims_to_operand_dims:[i64] index_vector_dim:i64 unique_indices:bool "
        "update_computation_subgraph_index:i32"
    ),
    "StablehloSliceOptions": "start_indices:[i64] limit_indices:[i64] strides:[i64]",
    "StablehloSortOptions": "dimension:i64 is_stable:bool comparator_subgraph_index:i32",
    "StablehloTransposeOptions": "permutation:[i64]",
    "StablehloWhileOptions": "cond_subgraph_index:i32 body_subgraph_index:i32",
    "StridedSliceOptions": (
        "begin_mask:i32 end_mask:i32 ellipsis_mask:i32 new_axis_mask:i32 shrink_axis_mask:i32 offset:bool"
    ),
    "SubOptions": "fused_activation_function:i8 pot_scale_int16:bool=true",
    "TransposeConvOptions": "padding:i8 stride_w:i32 stride_h:i32 fused_activation_function:i8 quantized_bias_type:i8",
    "UnidirectionalSequenceLSTMOptions": (
        "fused_activation_function:i8 cell_clip:f32 proj_clip:f32 time_major:bool "
        "asymmetric_quantize_inputs:bool diagonal_recurrent_tensors:bool"
    ),
    "UniqueOptions": "idx_out_type:i8=2",
    "UnpackOptions": "num:i32 axis:i32",
    "VarHandleOptions": "container:str shared_name:str",
    "WhileOptions": "cond_subgraph_index:i32 body_subgraph_index:i32",
}


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# The members of a union, in the order of their tags. Most options tables have no fields.
_BUILTIN_OPTIONS = _names("""
    Conv2DOptions DepthwiseConv2DOptions ConcatEmbeddingsOptions LSHProjectionOptions Pool2DOptions SVDFOptions
    RNNOptions FullyConnectedOptions SoftmaxOptions ConcatenationOptions AddOptions L2NormOptions
    LocalResponseNormalizationOptions LSTMOptions ResizeBilinearOptions CallOptions ReshapeOptions
    SkipGramOptions SpaceToDepthOptions EmbeddingLookupSparseOptions MulOptions PadOptions GatherOptions
    BatchToSpaceNDOptions SpaceToBatchNDOptions TransposeOptions ReducerOptions SubOptions DivOptions
    SqueezeOptions SequenceRNNOptions StridedSliceOptions ExpOptions TopKV2Options SplitOptions
    LogSoftmaxOptions CastOptions DequantizeOptions MaximumMinimumOptions ArgMaxOptions LessOptions NegOptions
    PadV2Options GreaterOptions GreaterEqualOptions LessEqualOptions SelectOptions SliceOptions
    TransposeConvOptions SparseToDenseOptions TileOptions ExpandDimsOptions EqualOptions NotEqualOptions
    ShapeOptions PowOptions ArgMinOptions FakeQuantOptions PackOptions LogicalOrOptions OneHotOptions
    LogicalAndOptions LogicalNotOptions UnpackOptions FloorDivOptions SquareOptions ZerosLikeOptions FillOptions
    BidirectionalSequenceLSTMOptions BidirectionalSequenceRNNOptions UnidirectionalSequenceLSTMOptions
    FloorModOptions RangeOptions ResizeNearestNeighborOptions LeakyReluOptions SquaredDifferenceOptions
    MirrorPadOptions AbsOptions SplitVOptions UniqueOptions ReverseV2Options AddNOptions GatherNdOptions
    CosOptions WhereOptions RankOptions ReverseSequenceOptions MatrixDiagOptions QuantizeOptions
    MatrixSetDiagOptions HardSwishOptions IfOptions WhileOptions DepthToSpaceOptions NonMaxSuppressionV4Options
    NonMaxSuppressionV5Options ScatterNdOptions SelectV2Options DensifyOptions SegmentSumOptions
    BatchMatMulOptions CumsumOptions CallOnceOptions BroadcastToOptions Rfft2dOptions Conv3DOptions
    HashtableOptions HashtableFindOptions HashtableImportOptions HashtableSizeOptions VarHandleOptions
    ReadVariableOptions AssignVariableOptions RandomOptions BucketizeOptions GeluOptions
    DynamicUpdateSliceOptions UnsortedSegmentProdOptions UnsortedSegmentMaxOptions UnsortedSegmentMinOptions
    UnsortedSegmentSumOptions ATan2Options SignOptions BitcastOptions BitwiseXorOptions RightShiftOptions
""")

_BUILTIN_OPTIONS_2 = _names("""
    StablehloConcatenateOptions StablehloBroadcastInDimOptions StablehloSliceOptions StablehloConvolutionOptions
    StablehloCustomCallOptions StablehloReduceOptions StablehloScatterOptions StablehloCompareOptions
    StablehloDynamicSliceOptions StablehloPadOptions StablehloIotaOptions StablehloDotGeneralOptions
    StablehloReduceWindowOptions StablehloSortOptions StablehloWhileOptions StablehloGatherOptions
    StablehloTransposeOptions DilateOptions StablehloRngBitGeneratorOptions ReduceWindowOptions
    StableHLOCompositeOptions StablehloShiftLeftOptions
""")

SCHEMA = Schema(
    tables={**_MODEL, **dict.fromkeys(_BUILTIN_OPTIONS + _BUILTIN_OPTIONS_2, ""), **_OPTIONS},
    unions={
        "BuiltinOptions": _BUILTIN_OPTIONS,
        "BuiltinOptions2": _BUILTIN_OPTIONS_2,
        "QuantizationDetails": ("CustomQuantization",),
        "SparseIndexVector": ("Int32Vector", "Uint16Vector", "Uint8Vector"),
    },
)
