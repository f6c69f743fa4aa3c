// Scalar element-wise kernels, the reference for the other instruction sets.
#include "core/variants.h"
#include "int8/elementwise/element_kernels.h"

namespace tpuconvert {
namespace {

void rescale(const Lanes& lanes) {
  const std::int32_t* const* p = lanes.parameters;
  for (int i = 0; i < lanes.count; ++i) {
    const int k = lanes.is_per_lane ? i : 0;
    const std::int64_t product = std::int64_t{lanes.a[i]} * p[kMultiplier][k];
    const std::int32_t first = p[kFirst][k], second = p[kSecond][k];
    const std::int64_t half = lanes.is_wide ? std::int64_t{1} << (first + second - 1) : 0;
    // For shifts of at most 32 bits, the low 32 bits of a logical and an arithmetic shift are equal.
    std::int32_t h = static_cast<std::int32_t>(static_cast<std::uint64_t>(product + half) >> first) >> second;
    if (!lanes.is_wide) h = (h + 1) >> 1;
    const std::int32_t again = p[kAgain][k];
    if (again >= 0) h = (((h + (h >> 31)) >> again) + 1) >> 1;
    lanes.out[i] = wrapping_sum(h, p[kOffset][k]);
  }
}

void linear_sum(const std::uint8_t* a, const std::uint8_t* b, const Lanes& lanes) {
  for (int i = 0; i < lanes.count; ++i) {
    const int k = lanes.is_per_lane ? i : 0;
    const std::int32_t factors = lanes.parameters[0][k];
    lanes.out[i] = wrapping_sum(a[i] * static_cast<std::int16_t>(factors) + b[i] * (factors >> 16), lanes.parameters[1][k]);
  }
}

void linear(const std::uint8_t* a, const Lanes& lanes) { linear_sum(a, a, lanes); }

// Calls linear_sum and rescale for blocks of at most kBlock elements.
void residual(const std::uint8_t* a, const std::uint8_t* b, const Lanes& sum, const Lanes& rescaling,
              const StoreLimits& limits, std::uint8_t* to, int count) {
  for (int start = 0; start < count; start += kBlock) {
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

constexpr decltype(ElementKernels::residual_float) kResidualFloat = nullptr;

void look_up_wide(const std::uint8_t* from, const WideTable& table, std::int32_t* out, int count) {
  for (int i = 0; i < count; ++i) out[i] = table.entries[from[i]];
}

void look_up(const std::uint8_t* from, std::uint8_t* to, std::int64_t count, const std::uint8_t* table) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = table[from[i]];
}

void interleave3(const std::uint8_t* const* planes, std::uint8_t* to, int count) {
  for (int i = 0; i < count; ++i)
    for (int plane = 0; plane < 3; ++plane) to[3 * i + plane] = planes[plane][i];
}

#include "int8/elementwise/element_loops.h"

}  // namespace

const ElementKernels& element_kernels_scalar() { return kKernels; }

const ElementKernels& element_kernels(Isa isa) {
  return TPU_SELECT(isa, element_kernels_scalar(), element_kernels_avx2(), element_kernels_avx512(),
                    element_kernels_neon());
}

}  // namespace tpuconvert
