// ElementKernels::residual by calls of linear_sum and rescale, for elements first..count-1 in blocks of at most kBlock.
// Included inside the namespace of an instruction set, after the definitions of both functions.

inline void residual_by_blocks(const std::uint8_t* a, const std::uint8_t* b, const Lanes& sum, const Lanes& rescaling,
                               const StoreLimits& limits, std::uint8_t* to, int first, int count) {
  for (int start = first; start < count; start += kBlock) {
    Lanes added = sum, rescaled = rescaling;
    added.count = rescaled.count = count - start < kBlock ? count - start : kBlock;
    if (sum.is_per_lane)
      for (const std::int32_t*& values : added.parameters) values = values == nullptr ? values : values + start;
    if (rescaling.is_per_lane)
      for (const std::int32_t*& values : rescaled.parameters) values = values == nullptr ? values : values + start;
    linear_sum(a + start, b + start, added);
    rescale(rescaled);
    for (int i = 0; i < added.count; ++i) {
      std::int32_t value = rescaled.out[i];
      value = value < limits.low ? limits.low : value;
      to[start + i] = static_cast<std::uint8_t>((value > limits.high ? limits.high : value) + limits.bias);
    }
  }
}
