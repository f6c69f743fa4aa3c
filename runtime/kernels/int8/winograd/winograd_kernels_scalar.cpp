// The Winograd convolution with loops that compilers vectorize for the baseline.
#include <cstring>

#include "int8/winograd/winograd_kernels.h"

namespace tpuconvert::winograd {
namespace {

constexpr int kWords = 8, kLanes = 8, kVectors = 1, kRows = 4;

struct Words {
  std::int16_t v[kWords];
};

Words load_bytes(const std::uint8_t* from, int count) {
  Words x;
  for (int i = 0; i < kWords; ++i) x.v[i] = i < count ? from[i] : std::int16_t{0};
  return x;
}
void store(std::int16_t* to, const Words& x) { std::memcpy(to, x.v, sizeof(x.v)); }
Words add(const Words& a, const Words& b) {
  Words c;
  for (int i = 0; i < kWords; ++i) c.v[i] = static_cast<std::int16_t>(a.v[i] + b.v[i]);
  return c;
}
Words subtract(const Words& a, const Words& b) {
  Words c;
  for (int i = 0; i < kWords; ++i) c.v[i] = static_cast<std::int16_t>(a.v[i] - b.v[i]);
  return c;
}
template <int Bits>
Words shifted(const Words& a) {
  Words c;
  for (int i = 0; i < kWords; ++i) c.v[i] = static_cast<std::int16_t>(a.v[i] * (1 << Bits));
  return c;
}

// Unsigned, because the arithmetic is modulo 2^32.
struct Integers {
  std::uint32_t v[kLanes];
};

Integers load(const std::int32_t* from) {
  Integers x;
  std::memcpy(x.v, from, sizeof(x.v));
  return x;
}
void store(std::int32_t* to, const Integers& x) { std::memcpy(to, x.v, sizeof(x.v)); }
Integers add(const Integers& a, const Integers& b) {
  Integers c;
  for (int i = 0; i < kLanes; ++i) c.v[i] = a.v[i] + b.v[i];
  return c;
}
Integers subtract(const Integers& a, const Integers& b) {
  Integers c;
  for (int i = 0; i < kLanes; ++i) c.v[i] = a.v[i] - b.v[i];
  return c;
}
template <int Bits>
Integers shifted(const Integers& a) {
  Integers c;
  for (int i = 0; i < kLanes; ++i) c.v[i] = a.v[i] << Bits;
  return c;
}
Integers divided(const Integers& a) {
  Integers c;
  for (int i = 0; i < kLanes; ++i)
    c.v[i] = static_cast<std::uint32_t>(static_cast<std::int32_t>(a.v[i] * static_cast<std::uint32_t>(kInverseOf9)) >> 6);
  return c;
}

#include "int8/winograd/winograd_transforms.inl"

template <int Rows>
void multiply_rows(const ProductTask& task, int tile) {
  std::uint32_t sums[Rows][kLanes] = {};
  const std::int16_t* v = task.v + tile * task.v_pitch;
  const std::int16_t* u = task.u;
  for (int channel = 0; channel < 2 * task.pairs; ++channel, u += kLanes) {
    for (int row = 0; row < Rows; ++row) {
      const std::int32_t x = v[row * task.v_pitch + channel];
      for (int i = 0; i < kLanes; ++i) sums[row][i] += static_cast<std::uint32_t>(x * u[i]);
    }
  }
  for (int row = 0; row < Rows; ++row) std::memcpy(task.m + (tile + row) * task.m_pitch, sums[row], sizeof(sums[row]));
}

void multiply(const ProductTask& task) {
  int tile = 0;
  for (; tile + kRows <= task.tiles; tile += kRows) multiply_rows<kRows>(task, tile);
  for (; tile < task.tiles; ++tile) multiply_rows<1>(task, tile);
}

}  // namespace

const Functions& functions_scalar() {
  static constexpr Functions kFunctions{kLanes, kVectors, false, kRows, transform_input, multiply, transform_output};
  return kFunctions;
}

}  // namespace tpuconvert::winograd
