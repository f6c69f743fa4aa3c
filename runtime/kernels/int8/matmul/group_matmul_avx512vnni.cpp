#ifdef __AVX512VNNI__
#include "float32/vector_avx512.h"

namespace tpuconvert {
namespace {

constexpr int kInt8TileRows = 6;
constexpr bool kInt8DecodesTwoPanels = true;

// Sixteen words of four bytes or of one integer.
struct Words {
  __m512i v;

  // Number by which stored codes are larger than the bytes that `add_products` multiplies.
  template <int kBits>
  static constexpr int offset() {
    return 0;
  }
  FLOAT_INLINE static Words load(const void* from) { return {_mm512_loadu_si512(from)}; }
  FLOAT_INLINE static Words broadcast(const void* word) { return {_mm512_set1_epi32(*static_cast<const Unaligned*>(word))}; }
  FLOAT_INLINE Words low_nibbles() const { return {_mm512_and_si512(v, _mm512_set1_epi8(15))}; }
  FLOAT_INLINE Words high_nibbles() const {
    return {_mm512_and_si512(_mm512_srli_epi32(v, 4), _mm512_set1_epi8(15))};
  }
  // Adds the dot products of four unsigned bytes of `codes` and four signed bytes of `x`. Assembler with tied operands,
  // because GCC 12 copies and spills accumulators around the builtin.
  template <int kBits>
  FLOAT_INLINE void add_products(Words codes, Words x) {
    asm("vpdpbusd %2, %1, %0" : "+v"(v) : "v"(codes.v), "v"(x.v));
  }
  FLOAT_INLINE Float to_float() const { return {_mm512_cvtepi32_ps(v)}; }

 private:
  typedef int Unaligned __attribute__((aligned(1), may_alias));
};

}  // namespace
}  // namespace tpuconvert

// Uses the vector types above.
#include "int8/matmul/group_matmul_tile.h"

namespace tpuconvert {

const Int8GroupKernels kInt8GroupAvx512Vnni{Float::kLanes, quantize, multiply};

}  // namespace tpuconvert
#endif
