#include "general/conv_rows_tile.h"

namespace tpuconvert {

namespace {

struct Words {
  static constexpr std::int64_t kLanes = 4;
  std::int32_t x[kLanes];
  static Words zero() { return {}; }
  static Words load(const std::int32_t* from) {
    Words words;
    std::copy(from, from + kLanes, words.x);
    return words;
  }
  static Words broadcast(std::int32_t value) { return {{value, value, value, value}}; }
  static Words multiply_add(const Words& a, const Words& b, Words c) {
    for (int i = 0; i < kLanes; ++i)
      c.x[i] += static_cast<std::int16_t>(a.x[i]) * static_cast<std::int16_t>(b.x[i]) + (a.x[i] >> 16) * (b.x[i] >> 16);
    return c;
  }
  void store(std::int32_t* to) const { std::copy(x, x + kLanes, to); }
};

struct Doubles {
  static constexpr std::int64_t kLanes = 2;
  double x[kLanes];
  static Doubles zero() { return {}; }
  static Doubles load(const double* from) { return {{from[0], from[1]}}; }
  static Doubles broadcast(double value) { return {{value, value}}; }
  static Doubles multiply_add(const Doubles& a, const Doubles& b, const Doubles& c) {
    return {{c.x[0] + a.x[0] * b.x[0], c.x[1] + a.x[1] * b.x[1]}};
  }
  void store(double* to) const { std::copy(x, x + kLanes, to); }
};

}  // namespace

ConvRows conv_rows_scalar() { return {add_rows<Doubles, double>, add_rows<Words, std::int32_t>}; }

}  // namespace tpuconvert
