// The Winograd convolution for AVX512-VNNI.
#if defined(__x86_64__)

#include "float32/unroll.h"
#include "int8/tile/lanes.h"
#include "int8/winograd/winograd_kernels.h"

namespace tpuconvert::winograd {
namespace {

constexpr int kWords = 32, kLanes = 16, kVectors = 4;

struct Words {
  __m512i v;
};

TPU_INLINE Words load_bytes(const std::uint8_t* from, int count) {
  if (count == kWords) return {_mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(from)))};
  return {_mm512_cvtepu8_epi16(_mm256_maskz_loadu_epi8((__mmask32{1} << count) - 1, from))};
}
TPU_INLINE void store(std::int16_t* to, Words x) { _mm512_store_si512(to, x.v); }
TPU_INLINE Words add(Words a, Words b) { return {_mm512_add_epi16(a.v, b.v)}; }
TPU_INLINE Words subtract(Words a, Words b) { return {_mm512_sub_epi16(a.v, b.v)}; }
template <int Bits>
TPU_INLINE Words shifted(Words x) { return {_mm512_slli_epi16(x.v, Bits)}; }

struct Integers {
  __m512i v;
};

TPU_INLINE Integers load(const std::int32_t* from) { return {_mm512_load_si512(from)}; }
TPU_INLINE void store(std::int32_t* to, Integers x) { _mm512_store_si512(to, x.v); }
TPU_INLINE Integers add(Integers a, Integers b) { return {_mm512_add_epi32(a.v, b.v)}; }
TPU_INLINE Integers subtract(Integers a, Integers b) { return {_mm512_sub_epi32(a.v, b.v)}; }
template <int Bits>
TPU_INLINE Integers shifted(Integers x) { return {_mm512_slli_epi32(x.v, Bits)}; }
TPU_INLINE Integers divided(Integers x) {
  return {_mm512_srai_epi32(_mm512_mullo_epi32(x.v, _mm512_set1_epi32(kInverseOf9)), 6)};
}

// Assembler with tied operands for the same reason as avx512::dot.
TPU_INLINE void add_pairs(__m512i& sum, __m512i x, __m512i w) { asm("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w)); }
TPU_INLINE __m512i zero() { return _mm512_setzero_si512(); }
TPU_INLINE __m512i load_weights(const std::int16_t* from) { return _mm512_load_si512(from); }
TPU_INLINE __m512i broadcast(const std::int16_t* pair) {
  return _mm512_set1_epi32(*reinterpret_cast<const __attribute__((may_alias)) std::int32_t*>(pair));
}
TPU_INLINE void store_sums(std::int32_t* to, __m512i x) { _mm512_store_si512(to, x); }

using Register = __m512i;

// Rows * vectors <= 28 leaves registers for an operand and the weights.
constexpr int largest_rows(int vectors) { return vectors == 4 ? 7 : vectors == 3 ? 9 : 12; }

#include "int8/winograd/winograd_transforms.inl"

#include "int8/winograd/winograd_products.inl"

}  // namespace

const Functions& functions_avx512vnni() {
  static constexpr Functions kFunctions{kLanes, kVectors, true, largest_rows(kVectors), transform_input, multiply,
                                        transform_output};
  return kFunctions;
}

}  // namespace tpuconvert::winograd

#endif
