// Integer recurrent layers, one unit at a time.
#include <algorithm>
#include <cstdint>

namespace tpuconvert {
namespace {

struct Lanes {
  using V = std::int32_t;
  using Item = std::int16_t;
  using Weight = std::int16_t;
  static constexpr int kLanes = 1, kItems = 2, kTileRows = 1, kAccumulators = 8;

  static V broadcast(std::int32_t x) { return x; }
  static V load(const std::int32_t* from) { return *from; }
  static void store(std::int32_t* to, V x) { *to = x; }
  static V load_words(const std::int16_t* from) { return *from; }
  static void store_items(Item* to, V x) { *to = static_cast<Item>(x); }
  static void store_bytes(std::uint8_t* to, V x) { *to = static_cast<std::uint8_t>(x); }
  static V add(V a, V b) { return a + b; }
  static V subtract(V a, V b) { return a - b; }
  static V multiply(V a, V b) { return a * b; }
  static V smaller(V a, V b) { return std::min(a, b); }
  static V larger(V a, V b) { return std::max(a, b); }
  static V bit_and(V a, V b) { return a & b; }
  static V sign(V x) { return x >> 31; }
  static V negative_if_positive(V x) { return x > 0 ? -1 : 0; }
  static V shift_right(V x, int bits) { return x >> bits; }
  static V shift_right_by(V x, V bits) { return x >> bits; }
  static V shift_left_by(V x, V bits) { return x << bits; }
  // (a * b + 2^30) >> 31
  static V multiply_high(V a, V b) { return static_cast<V>((std::int64_t{a} * b + (std::int64_t{1} << 30)) >> 31); }
  static V gather(const std::int16_t* table, V index) { return table[index]; }
  static V dot(V sum, V x, V w) {
    return sum + static_cast<std::int16_t>(x) * static_cast<std::int16_t>(w) + (x >> 16) * (w >> 16);
  }
};

}  // namespace
}  // namespace tpuconvert

// Uses `Lanes`.
#include "int8/recurrent/recurrent_tile.h"

namespace tpuconvert {

const RecurrentInt8Kernels kRecurrentInt8Scalar = kKernels;

}  // namespace tpuconvert
