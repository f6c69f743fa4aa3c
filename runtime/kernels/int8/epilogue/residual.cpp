#include "int8/epilogue/residual.h"

#include <cstdlib>
#include <numeric>
#include <stdexcept>
#include <string>

namespace tpuconvert {

namespace {

void require(bool is_true, const char* message) {
  if (!is_true) throw std::invalid_argument(std::string("residual: ") + message);
}

std::int32_t pick(const std::vector<std::int32_t>& values, int channel) {
  return values[values.size() == 1 ? 0 : static_cast<std::size_t>(channel)];
}

// Vector kernels widen bytes within quarters of 16 bytes: register q of a block contains elements 4 * q .. 4 * q + 3 of
// each quarter. A register of AVX2 has two quarters, so a block is processed in two halves.
struct Orders {
  std::int32_t natural[kResidualBlock], halves[kResidualBlock], whole[kResidualBlock];

  Orders() {
    for (int i = 0; i < kResidualBlock; ++i) {
      natural[i] = i;
      whole[i] = 16 * (i % 16 / 4) + 4 * (i / 16) + i % 4;
      halves[i] = 32 * (i / 32) + 16 * (i % 8 / 4) + 4 * (i % 32 / 8) + i % 4;
    }
  }
};

const Orders& orders() {
  static const Orders found;
  return found;
}

}  // namespace

void residual_scalar(const ResidualRows& work) {
  for (int row = 0; row < work.rows; ++row) {
    std::uint8_t* bytes = work.bytes[row] + work.offset;
    const std::uint8_t* others = work.others[row] + work.offset;
    const std::size_t period = static_cast<std::size_t>(work.blocks) * kResidualBlock;
    for (std::size_t i = 0; i < work.count; ++i) {
      const std::int32_t pair = work.factors[i % period];
      const std::int32_t factor = static_cast<std::int16_t>(pair & 0xffff), other_factor = pair >> 16;
      const std::int32_t sum = (factor * bytes[i] + other_factor * others[i] + work.offsets[i % period]) >> work.shift;
      bytes[i] = static_cast<std::uint8_t>(sum < work.low ? work.low : sum > work.high ? work.high : sum);
    }
  }
}

Residual::Residual(const ResidualSpec& spec, int channels, Isa isa)
    : spec_(spec), channels_(channels), order_(orders().natural), function_(residual_scalar), shift_(spec.shift),
      low_(static_cast<std::uint8_t>(spec.low)), high_(static_cast<std::uint8_t>(spec.high)) {
#if defined(__x86_64__)
  if (isa >= Isa::kAvx2) {
    order_ = orders().halves;
    function_ = residual_avx2;
  }
  if (isa >= Isa::kAvx512Vnni) {
    order_ = orders().whole;
    function_ = residual_avx512;
  }
#elif defined(__aarch64__)
  if (isa != Isa::kScalar) function_ = residual_neon;
#else
  static_cast<void>(isa);
#endif
  require(0 <= spec.shift && spec.shift <= 31, "the shift is not 0..31");
  require(0 <= spec.low && spec.low <= spec.high && spec.high <= 255, "the limits are not those of a byte");
  for (const auto* values : {&spec.factor, &spec.other_factor, &spec.offset})
    require(values->size() == 1 || values->size() == static_cast<std::size_t>(channels),
            "a vector needs one element, or one per channel");
  for (int channel = 0; channel < channels; ++channel) {
    const std::int64_t factor = pick(spec.factor, channel), other = pick(spec.other_factor, channel);
    require(factor >= INT16_MIN && factor <= INT16_MAX && other >= INT16_MIN && other <= INT16_MAX,
            "a factor has more than 16 bits");
    const std::int64_t largest = 255 * (std::abs(factor) + std::abs(other));
    require(largest + std::abs(std::int64_t{pick(spec.offset, channel)}) <= INT32_MAX, "a sum may leave 32 bits");
  }
}

Residual::Panel Residual::add_panel(int first, int count, bool repeats) {
  require(first >= 0 && count >= 1 && count <= channels_ - first, "no such channels");
  const int blocks = repeats ? count / std::gcd(count, kResidualBlock) : (count + kResidualBlock - 1) / kResidualBlock;
  const Panel panel{parameters_.size(), blocks};
  const std::size_t size = static_cast<std::size_t>(blocks) * kResidualBlock;
  parameters_.resize(panel.at + 2 * size);
  std::int32_t* factors = parameters_.data() + panel.at;
  for (std::size_t i = 0; i < size; ++i) {
    const int element = static_cast<int>(i) / kResidualBlock * kResidualBlock + order_[i % kResidualBlock];
    if (!repeats && element >= count) continue;
    const int channel = first + element % count;
    const auto lower = static_cast<std::uint32_t>(pick(spec_.factor, channel)) & 0xffffu;
    const auto upper = static_cast<std::uint32_t>(pick(spec_.other_factor, channel)) << 16;
    factors[i] = static_cast<std::int32_t>(lower | upper);
    factors[size + i] = pick(spec_.offset, channel);
  }
  return panel;
}

}  // namespace tpuconvert
