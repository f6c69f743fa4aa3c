#if defined(__x86_64__)
#include <immintrin.h>

#include "general/conv_rows_tile.h"

namespace tpuconvert {

namespace {

struct Words {
  static constexpr std::int64_t kLanes = 16;
  __m512i x;
  static Words zero() { return {_mm512_setzero_si512()}; }
  static Words load(const std::int32_t* from) { return {_mm512_loadu_si512(reinterpret_cast<const __m512i*>(from))}; }
  static Words broadcast(std::int32_t value) { return {_mm512_set1_epi32(value)}; }
  static Words multiply_add(const Words& a, const Words& b, const Words& c) {
    return {_mm512_add_epi32(c.x, _mm512_madd_epi16(a.x, b.x))};
  }
  void store(std::int32_t* to) const { _mm512_storeu_si512(reinterpret_cast<__m512i*>(to), x); }
};

// No fused operations: every instruction set rounds the products as the scalar code does.
struct Doubles {
  static constexpr std::int64_t kLanes = 8;
  __m512d x;
  static Doubles zero() { return {_mm512_setzero_pd()}; }
  static Doubles load(const double* from) { return {_mm512_loadu_pd(from)}; }
  static Doubles broadcast(double value) { return {_mm512_set1_pd(value)}; }
  static Doubles multiply_add(const Doubles& a, const Doubles& b, const Doubles& c) {
    return {_mm512_add_pd(c.x, _mm512_mul_pd(a.x, b.x))};
  }
  void store(double* to) const { _mm512_storeu_pd(to, x); }
};

}  // namespace

ConvRows conv_rows_avx512() { return {add_rows<Doubles, double>, add_rows<Words, std::int32_t>}; }

}  // namespace tpuconvert
#endif
