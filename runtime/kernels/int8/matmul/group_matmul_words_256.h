// Words of the matmul of INT8 activations with group-quantized weights in 256-bit registers. The including file defines
// `kByteOffset` and `add_byte_products`.
#pragma once

namespace tpuconvert {
namespace {

constexpr int kInt8TileRows = 2;
constexpr bool kInt8DecodesTwoPanels = false;

// Eight words of four bytes or of one integer.
struct Words {
  __m256i v;

  // Number by which stored codes are larger than the bytes that `add_products` multiplies.
  template <int kBits>
  static constexpr int offset() {
    return kBits == 8 ? kByteOffset : 0;
  }
  FLOAT_INLINE static Words load(const void* from) { return {_mm256_loadu_si256(static_cast<const __m256i*>(from))}; }
  FLOAT_INLINE static Words broadcast(const void* word) { return {_mm256_set1_epi32(*static_cast<const Unaligned*>(word))}; }
  FLOAT_INLINE Words low_nibbles() const { return {_mm256_and_si256(v, _mm256_set1_epi8(15))}; }
  FLOAT_INLINE Words high_nibbles() const {
    return {_mm256_and_si256(_mm256_srli_epi32(v, 4), _mm256_set1_epi8(15))};
  }
  // Adds the dot products of four bytes of `codes` and four signed bytes of `x`.
  template <int kBits>
  FLOAT_INLINE void add_products(Words codes, Words x) {
    add_byte_products<kBits>(v, codes.v, x.v);
  }
  FLOAT_INLINE Float to_float() const { return {_mm256_cvtepi32_ps(v)}; }

 private:
  typedef int Unaligned __attribute__((aligned(1), may_alias));
};

}  // namespace
}  // namespace tpuconvert
