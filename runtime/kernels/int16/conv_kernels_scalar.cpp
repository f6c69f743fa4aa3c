// The 16-bit convolution without vector instructions.
#include <cstring>

#include "int16/conv_kernels.h"

namespace tpuconvert::int16 {
namespace {

struct Lanes {
  using Integer = std::int32_t;
  static constexpr int kCount = 1;
  static constexpr int kRows = 1;
  static constexpr bool kHasFactors = false;

  static Integer load(const std::int32_t* from) { return *from; }
  static Integer all(std::int32_t value) { return value; }
  // Sums wrap modulo 2^32, so that the order of additions does not matter; complete sums fit 32 bits, which is checked
  // when the step is made.
  static Integer add_products(Integer sum, Integer x, Integer w) {
    const std::uint32_t low = static_cast<std::uint32_t>(static_cast<std::int16_t>(x) * static_cast<std::int16_t>(w));
    const std::uint32_t high = static_cast<std::uint32_t>((x >> 16) * (w >> 16));
    return static_cast<Integer>(static_cast<std::uint32_t>(sum) + low + high);
  }
  static Integer requantized(Integer x, const Requantization& r, int lane) {
    const std::int64_t product = std::int64_t{x} * r.multiplier[lane];
    const std::uint64_t sum = static_cast<std::uint64_t>(product) + static_cast<std::uint64_t>(r.half[lane % 2][lane / 2]);
    const auto shifted = static_cast<std::uint32_t>(sum >> r.shift[lane % 2][lane / 2]);
    return static_cast<Integer>(shifted + static_cast<std::uint32_t>(r.addend[lane]));
  }
  static Integer limited(Integer x, std::int32_t low, std::int32_t high) { return x < low ? low : x > high ? high : x; }
  static void store_bytes(std::uint8_t* out, Integer x) { *out = static_cast<std::uint8_t>(x); }
  static void store_words(std::uint8_t* out, Integer x) {
    const auto word = static_cast<std::uint16_t>(x);
    std::memcpy(out, &word, sizeof(word));
  }
  static void store_reals(std::uint8_t* out, Integer x, std::int32_t zero, float scale) {
    const float real = static_cast<float>(x - zero) * scale;
    std::memcpy(out, &real, sizeof(real));
  }
  static void copy(std::uint8_t* to, const std::uint8_t* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
  static void store(std::int32_t* to, Integer x) { *to = x; }
  static Integer load_words(const std::int16_t* from) { return *from; }
  static Integer pair_of(Integer x) {
    const Integer value = x < 32639 ? x : 32639;
    const std::uint32_t byte = static_cast<std::uint32_t>((value + 128) >> 8);
    return static_cast<Integer>((static_cast<std::uint32_t>(value) & 0xFFFFu) | byte << 16);
  }
};

#include "int16/conv_kernels.inl"

}  // namespace

const Functions& functions_scalar() {
  static constexpr Functions kFunctions{Lanes::kRows, multiply, depthwise, expand_words, expand_bytes};
  return kFunctions;
}

}  // namespace tpuconvert::int16
