// Element-wise kernels for vectors of 8 lanes.
#if defined(__x86_64__)

#include "int8/lanes/lanes_256.h"

namespace tpuconvert {
namespace {

struct Vector : Lanes256 {
  using Float = __m256;

  // Rounds float32 operations down during its lifetime. The memory barriers keep the compiler from moving loads, and
  // arithmetic on loaded values, across the changes of the mode.
  class RoundingDown {
   public:
    RoundingDown() : before_(_mm_getcsr()) {
      _mm_setcsr((before_ & ~0x6000u) | 0x2000u);
      __asm__ volatile("" ::: "memory");
    }
    RoundingDown(const RoundingDown&) = delete;
    RoundingDown& operator=(const RoundingDown&) = delete;
    ~RoundingDown() {
      __asm__ volatile("" ::: "memory");
      _mm_setcsr(before_);
    }

   private:
    unsigned before_;
  };

  static Float broadcast_float(float x) { return _mm256_set1_ps(x); }
  static V floor_of_product(V x, Float high_part, Float low_part) {
    const Float real = _mm256_cvtepi32_ps(x);
    return _mm256_cvtps_epi32(_mm256_fmadd_ps(high_part, real, _mm256_mul_ps(low_part, real)));
  }
  // (x + addend) >> 1 in 16 bits, saturated to bytes.
  static Bytes pack_halves(const V (&x)[kGroups][kVectors], V addend) {
    const auto words = [&](V a, V b) {
      return _mm256_srai_epi16(_mm256_adds_epi16(_mm256_packs_epi32(a, b), addend), 1);
    };
    return _mm256_packus_epi16(words(x[0][0], x[1][0]), words(x[2][0], x[3][0]));
  }

  static constexpr int kPixels = 16;
  static void interleave(const std::uint8_t* const* planes, int first, std::uint8_t* to) {
    // Index into the plane for each of 48 result bytes; -1 gives 0.
    const __m128i a0 = _mm_setr_epi8(0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1, -1, 5);
    const __m128i b0 = _mm_setr_epi8(-1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1, -1);
    const __m128i c0 = _mm_setr_epi8(-1, -1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1);
    const __m128i a1 = _mm_setr_epi8(-1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1, 10, -1);
    const __m128i b1 = _mm_setr_epi8(5, -1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1, 10);
    const __m128i c1 = _mm_setr_epi8(-1, 5, -1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1);
    const __m128i a2 = _mm_setr_epi8(-1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15, -1, -1);
    const __m128i b2 = _mm_setr_epi8(-1, -1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15, -1);
    const __m128i c2 = _mm_setr_epi8(10, -1, -1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15);
    const auto plane = [&](int k) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(planes[k] + first)); };
    const __m128i a = plane(0), b = plane(1), c = plane(2);
    const auto merge = [&](__m128i from_a, __m128i from_b, __m128i from_c) {
      return _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(a, from_a), _mm_shuffle_epi8(b, from_b)),
                          _mm_shuffle_epi8(c, from_c));
    };
    auto* target = reinterpret_cast<__m128i*>(to);
    _mm_storeu_si128(target, merge(a0, b0, c0));
    _mm_storeu_si128(target + 1, merge(a1, b1, c1));
    _mm_storeu_si128(target + 2, merge(a2, b2, c2));
  }
};

}  // namespace
}  // namespace tpuconvert

// These use `Vector`.
#include "int8/elementwise/element_tile.h"
#include "int8/elementwise/residual_float_tile.h"

namespace tpuconvert {
namespace {

constexpr auto kResidualFloat = residual_float;

// Loads one entry at a time: gather instructions are slower on most processors.
void look_up_wide(const std::uint8_t* from, const WideTable& table, std::int32_t* out, int count) {
  for (int i = 0; i < count; ++i) {
    std::int32_t value = table.entries[from[i]];
    __asm__("" : "+r"(value));
    out[i] = value;
  }
}

// Divides the table into 16 pieces of 16 entries. The upper half of an index selects the piece, the lower half the
// entry.
void look_up(const std::uint8_t* from, std::uint8_t* to, std::int64_t count, const std::uint8_t* table) {
  Bytes pieces[16];
  for (int piece = 0; piece < 16; ++piece)
    pieces[piece] =
        _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table + 16 * piece)));
  std::int64_t i = 0;
  for (; i + Vector::kBytes <= count; i += Vector::kBytes) {
    const Bytes x = Vector::load_register(from + i);
    Bytes result = _mm256_setzero_si256();
    // The saturating sum x - 16 * piece + 112 has a clear top bit (112..127) only if x is in the piece. A shuffle
    // returns 0 for an index with a set top bit.
    for (int piece = 0; piece < 16; ++piece) {
      const Bytes place = _mm256_sub_epi8(x, Vector::broadcast_byte(16 * piece));
      const Bytes index = _mm256_adds_epu8(place, Vector::broadcast_byte(0x70));
      result = _mm256_or_si256(result, _mm256_shuffle_epi8(pieces[piece], index));
    }
    Vector::store_register(to + i, result);
  }
  for (; i < count; ++i) to[i] = table[from[i]];
}

#include "int8/elementwise/element_loops.h"

}  // namespace

const ElementKernels& element_kernels_avx2() { return kKernels; }

}  // namespace tpuconvert

#endif
