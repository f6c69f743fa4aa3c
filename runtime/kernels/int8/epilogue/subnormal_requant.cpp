// Computes floor(m * S + offset + 1/2) of an accumulator S with one fused multiply-add.
//
// If the accumulator starts with the bits of the float32 value B * 2^-k, 2^23 <= B < 2^24, its final bits are those of
// (B + S) * 2^-k, as long as B + S stays in the same range: the integer additions change only the significand. A
// subnormal float32 value is a multiple of 2^-149, and its bits below the sign are that multiple as an integer. A fused
// multiply-add that rounds down therefore returns the bits of
//     floor((B + S) * m + c)    for the factor m * 2^(k - 149) and the addend c * 2^-149, with an integer c,
// without a conversion of operands or result. Negative results have the sign bit set and are negative as integers, so
// that packing saturates them to 0, as required.
//
// B and c remain to be chosen. Let m = M / Q, with M < 2^24 and Q a power of two. The sum B * M + c * Q may differ from
// (offset + 1/2) * Q by some D that moves no sum across a multiple of Q. Let t(k) be the smallest sum whose result is
// at least k, and r(k) the excess of m * t(k) over the required value, in units of 1 / Q; 0 <= r(k) < M. The condition
// is
//     -r(k) <= D < M - r(k)    for all results k within the limits:
// with the deviation D, t(k) must still reach the required value, and t(k) - 1 must not. The multiples of M just above
// odd multiples of Q / 2 have remainders of all sizes, so that one of the first few hundred fits. B * M is this
// multiple, or M less. Beyond the outermost thresholds, both functions are monotone and stay beyond the limits.
#if defined(__x86_64__)

#include "int8/epilogue/subnormal_requant.h"

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "int8/epilogue/residues.h"

namespace tpuconvert::avx512 {
namespace {

// biased exponent of the accumulators, such that accumulators and factors are normal values
constexpr int kExponent = 64;
constexpr int kMantissa = 24;
constexpr int kLeastShift = 24;  // shifts of factors below 1 are at least this
constexpr int kMostShift = 46;   // products with the largest offset fit 63 bits
constexpr int kMostOffset = 8192;
constexpr int kTries = 4096;

std::int64_t ceil_div(std::int64_t value, std::int64_t divisor) {
  return value / divisor + (value % divisor > 0 ? 1 : 0);
}

struct Channel {
  std::int64_t m, q;
  std::int64_t first_base, last_base;
  std::int64_t first_multiple;  // B is close to (first_multiple + i + 1/2) * q / m for some i < kTries

  std::int64_t odd_half(std::int64_t multiple) const { return multiple * q + q / 2; }
  std::int64_t excess(std::int64_t value) const { return ceil_div(value, m) * m - value; }
};

bool read(const OneFactorChannel& from, Channel* channel) {
  int exponent = 0;
  const double significand = std::frexp(static_cast<double>(from.factor), &exponent);
  const int shift = kMantissa - exponent;
  if (significand <= 0.0 || shift < kLeastShift || shift > kMostShift || std::abs(from.offset) > kMostOffset) return false;
  channel->m = static_cast<std::int64_t>(std::ldexp(significand, kMantissa));
  channel->q = std::int64_t{1} << shift;
  channel->first_base = (std::int64_t{1} << (kMantissa - 1)) + from.largest;
  channel->last_base = (std::int64_t{1} << kMantissa) - 1 - from.largest;
  channel->first_multiple = ceil_div((channel->first_base + 1) * channel->m - channel->q / 2, channel->q);
  return channel->first_base < channel->last_base;
}

float of_bits(std::uint32_t bits) {
  float value = 0.0f;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

}  // namespace

bool make_subnormal(const OneFactorChannel* channels, int low, int high, LaneParameters* lanes) {
  Channel found[kLanes];
  Residues thresholds{}, bases{};
  for (int lane = 0; lane < kLanes; ++lane) {
    if (channels[lane].factor == 0.0f) {
      thresholds.modulus[lane] = bases.modulus[lane] = 1;
      continue;
    }
    Channel& channel = found[lane];
    if (!read(channels[lane], &channel)) return false;
    thresholds.modulus[lane] = bases.modulus[lane] = static_cast<std::int32_t>(channel.m);
    thresholds.step[lane] = bases.step[lane] = static_cast<std::int32_t>(channel.q % channel.m);
    // The first result above `low` requires a sum of at least (low - offset + 1/2) / m.
    thresholds.first[lane] = static_cast<std::int32_t>(channel.excess(channel.odd_half(low - channels[lane].offset)));
    bases.first[lane] = static_cast<std::int32_t>(channel.excess(channel.odd_half(channel.first_multiple)));
  }
  alignas(64) std::int32_t least[kLanes], largest[kLanes], index[kLanes];
  find_extremes(thresholds, high - low, least, largest);
  for (int lane = 0; lane < kLanes; ++lane) {
    largest[lane] = thresholds.modulus[lane] - largest[lane];  // exclusive upper bound of D
    least[lane] = thresholds.modulus[lane] - least[lane];      // lower bound of D, plus M
  }
  find_first(bases, kTries, largest, least, index);

  std::int64_t base[kLanes], addend[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    if (channels[lane].factor == 0.0f) continue;
    const Channel& channel = found[lane];
    if (index[lane] < 0) return false;
    const std::int64_t multiple = channel.first_multiple + index[lane];
    base[lane] = ceil_div(channel.odd_half(multiple), channel.m);
    if (channel.excess(channel.odd_half(multiple)) >= largest[lane]) --base[lane];
    addend[lane] = channels[lane].offset - multiple;
    if (base[lane] > channel.last_base || std::llabs(addend[lane]) >> kMantissa != 0) return false;
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    if (channels[lane].factor == 0.0f) continue;
    const auto bits = static_cast<std::uint32_t>((std::int64_t{kExponent - 1} << (kMantissa - 1)) + base[lane]);
    lanes->bias[lane] = static_cast<std::int32_t>(static_cast<std::uint32_t>(lanes->bias[lane]) + bits);
    // As float32 values, accumulators are multiples of 2^(kExponent - 150), and results are multiples of 2^-149.
    lanes->factor[lane] = std::ldexp(channels[lane].factor, 1 - kExponent);
    lanes->second[lane] = of_bits((addend[lane] < 0 ? 1u << 31 : 0u) | static_cast<std::uint32_t>(std::llabs(addend[lane])));
  }
  return true;
}

}  // namespace tpuconvert::avx512

#endif
