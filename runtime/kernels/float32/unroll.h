// Unrolled loops: each iteration has its index as a compile-time constant, so that arrays of vectors stay in registers.
#pragma once

#include <utility>

namespace tpuconvert {
namespace {

template <int kIndex>
struct Turn {
  static constexpr int value = kIndex;
};

template <typename F, int... kIndices>
inline __attribute__((always_inline)) void unroll_each(F&& body, std::integer_sequence<int, kIndices...>) {
  (body(Turn<kIndices>()), ...);
}

// Calls body(Turn<0>()), body(Turn<1>()), ... body(Turn<kCount - 1>()).
template <int kCount, typename F>
inline __attribute__((always_inline)) void unroll(F&& body) {
  unroll_each(body, std::make_integer_sequence<int, kCount>());
}

#define UNROLLED(index) [&](auto index) __attribute__((always_inline))

}  // namespace
}  // namespace tpuconvert
