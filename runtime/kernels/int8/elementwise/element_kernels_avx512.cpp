// Element-wise kernels for vectors of 16 lanes.
#if defined(__x86_64__)

#include "int8/lanes/lanes_512.h"

namespace tpuconvert {
namespace {

// Source indices for the result bytes of 64 pixels. The first two planes form one table of 128 bytes, the third plane
// is a table of 64 bytes.
struct Interleaving {
  std::uint8_t first_two[3][64];
  std::uint8_t third[3][64];
  std::uint64_t is_third[3];

  constexpr Interleaving() : first_two(), third(), is_third() {
    for (int i = 0; i < 192; ++i) {
      first_two[i / 64][i % 64] = static_cast<std::uint8_t>(i / 3 + i % 3 % 2 * 64);
      third[i / 64][i % 64] = static_cast<std::uint8_t>(i / 3);
      if (i % 3 == 2) is_third[i / 64] |= std::uint64_t{1} << (i % 64);
    }
  }
};

struct Vector : Lanes512 {
  using Float = __m512;

  // The instructions below contain the rounding mode.
  struct RoundingDown {
    RoundingDown() {}
  };

  static Float broadcast_float(float x) { return _mm512_set1_ps(x); }
  static V floor_of_product(V x, Float high_part, Float low_part) {
    constexpr int kDown = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC;
    const Float real = _mm512_cvtepi32_ps(x), low = _mm512_mul_ps(low_part, real);
    return _mm512_cvt_roundps_epi32(_mm512_fmadd_round_ps(high_part, real, low, kDown), kDown);
  }
  // (x + addend) >> 1 in 16 bits, saturated to bytes.
  static Bytes pack_halves(const V (&x)[kGroups][kVectors], V addend) {
    const auto words = [&](V a, V b) {
      return _mm512_srai_epi16(_mm512_adds_epi16(_mm512_packs_epi32(a, b), addend), 1);
    };
    return _mm512_packus_epi16(words(x[0][0], x[1][0]), words(x[2][0], x[3][0]));
  }

  static constexpr int kPixels = 64;
  static void interleave(const std::uint8_t* const* planes, int first, std::uint8_t* to) {
    static constexpr Interleaving kPlaces;
    const Bytes a = load_register(planes[0] + first), b = load_register(planes[1] + first);
    const Bytes c = load_register(planes[2] + first);
    for (int part = 0; part < 3; ++part) {
      const Bytes two = _mm512_permutex2var_epi8(a, load_register(kPlaces.first_two[part]), b);
      const Bytes all =
          _mm512_mask_permutexvar_epi8(two, kPlaces.is_third[part], load_register(kPlaces.third[part]), c);
      store_register(to + 64 * part, all);
    }
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

// A lookup table of 256 bytes in four registers.
class ByteTable {
 public:
  explicit ByteTable(const std::uint8_t* table)
      : pieces_{Vector::load_register(table), Vector::load_register(table + 64), Vector::load_register(table + 128),
                Vector::load_register(table + 192)} {}
  Bytes operator[](Bytes x) const {
    const Bytes low = _mm512_permutex2var_epi8(pieces_[0], x, pieces_[1]);
    const Bytes high = _mm512_permutex2var_epi8(pieces_[2], x, pieces_[3]);
    return _mm512_mask_mov_epi8(low, _mm512_movepi8_mask(x), high);
  }

 private:
  Bytes pieces_[4];
};

// Looks up the four bytes of the entries separately and interleaves them. Interleaving works within 128-bit lanes, so
// the indices are first distributed to the four lanes in groups of four.
void look_up_wide(const std::uint8_t* from, const WideTable& table, std::int32_t* out, int count) {
  alignas(64) static constexpr std::uint8_t kDealt[64] = {
      0,  1,  2,  3,  16, 17, 18, 19, 32, 33, 34, 35, 48, 49, 50, 51,  //
      4,  5,  6,  7,  20, 21, 22, 23, 36, 37, 38, 39, 52, 53, 54, 55,  //
      8,  9,  10, 11, 24, 25, 26, 27, 40, 41, 42, 43, 56, 57, 58, 59,  //
      12, 13, 14, 15, 28, 29, 30, 31, 44, 45, 46, 47, 60, 61, 62, 63};
  const Bytes order = Vector::load_register(kDealt);
  const ByteTable p0(table.planes[0]), p1(table.planes[1]), p2(table.planes[2]), p3(table.planes[3]);
  for (int i = 0; i < count; i += 64) {
    const int rest = count - i;
    const Bytes from_64 = rest >= 64 ? Vector::load_register(from + i) : Vector::load_register(from + i, rest);
    const Bytes x = _mm512_permutexvar_epi8(order, from_64);
    const Bytes b0 = p0[x], b1 = p1[x], b2 = p2[x], b3 = p3[x];
    const Bytes low0 = _mm512_unpacklo_epi8(b0, b1), low1 = _mm512_unpackhi_epi8(b0, b1);
    const Bytes high0 = _mm512_unpacklo_epi8(b2, b3), high1 = _mm512_unpackhi_epi8(b2, b3);
    const V lanes[4] = {_mm512_unpacklo_epi16(low0, high0), _mm512_unpackhi_epi16(low0, high0),
                        _mm512_unpacklo_epi16(low1, high1), _mm512_unpackhi_epi16(low1, high1)};
    // Groups of 16 lanes after the last element are not stored.
    for (int group = 0; group < 4; ++group)
      if (16 * group < rest) Vector::store(out + i + 16 * group, lanes[group]);
  }
}

void look_up(const std::uint8_t* from, std::uint8_t* to, std::int64_t count, const std::uint8_t* table) {
  const ByteTable bytes(table);
  std::int64_t i = 0;
  for (; i + Vector::kBytes <= count; i += Vector::kBytes)
    Vector::store_register(to + i, bytes[Vector::load_register(from + i)]);
  const int rest = static_cast<int>(count - i);
  if (rest > 0) Vector::store_register(to + i, bytes[Vector::load_register(from + i, rest)], rest);
}

#include "int8/elementwise/element_loops.h"

}  // namespace

const ElementKernels& element_kernels_avx512() { return kKernels; }

}  // namespace tpuconvert

#endif
