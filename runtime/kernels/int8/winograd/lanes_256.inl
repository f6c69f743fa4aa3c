// Registers of 16 words or 8 integers. The including file defines `add_pairs(sum, x, w)`.

constexpr int kWords = 16, kLanes = 8, kVectors = 2;

struct Words {
  __m256i v;
};

inline Words load_bytes(const std::uint8_t* from, int count) {
  if (count == kWords) return {_mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)))};
  alignas(16) std::uint8_t bytes[kWords] = {};
  std::memcpy(bytes, from, static_cast<std::size_t>(count));
  return {_mm256_cvtepu8_epi16(_mm_load_si128(reinterpret_cast<const __m128i*>(bytes)))};
}
inline void store(std::int16_t* to, Words x) { _mm256_store_si256(reinterpret_cast<__m256i*>(to), x.v); }
inline Words add(Words a, Words b) { return {_mm256_add_epi16(a.v, b.v)}; }
inline Words subtract(Words a, Words b) { return {_mm256_sub_epi16(a.v, b.v)}; }
template <int Bits>
inline Words shifted(Words x) {
  return {_mm256_slli_epi16(x.v, Bits)};
}

struct Integers {
  __m256i v;
};

inline Integers load(const std::int32_t* from) { return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))}; }
inline void store(std::int32_t* to, Integers x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), x.v); }
inline Integers add(Integers a, Integers b) { return {_mm256_add_epi32(a.v, b.v)}; }
inline Integers subtract(Integers a, Integers b) { return {_mm256_sub_epi32(a.v, b.v)}; }
template <int Bits>
inline Integers shifted(Integers x) {
  return {_mm256_slli_epi32(x.v, Bits)};
}
inline Integers divided(Integers x) {
  return {_mm256_srai_epi32(_mm256_mullo_epi32(x.v, _mm256_set1_epi32(kInverseOf9)), 6)};
}

using Register = __m256i;

inline Register zero() { return _mm256_setzero_si256(); }
inline Register load_weights(const std::int16_t* from) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(from)); }
inline Register broadcast(const std::int16_t* pair) {
  std::int32_t both;
  std::memcpy(&both, pair, sizeof(both));
  return _mm256_set1_epi32(both);
}
inline void store_sums(std::int32_t* to, Register x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), x); }

// Accumulators, two weights, an operand and a product fit 16 registers.
constexpr int largest_rows(int) { return 6; }

#include "int8/winograd/winograd_transforms.inl"

#include "int8/winograd/winograd_products.inl"
