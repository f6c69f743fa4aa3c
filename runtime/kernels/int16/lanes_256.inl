// Registers of 8 lanes for conv_kernels.inl. The including file defines `add_pairs(sum, x, w)`.

struct Lanes {
  using Integer = __m256i;
  static constexpr int kCount = 8;
  static constexpr int kRows = 5;  // ten accumulators, two weights and an operand
  static constexpr bool kHasFactors = false;

  static Integer load(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }
  static Integer all(std::int32_t value) { return _mm256_set1_epi32(value); }
  // Sums wrap modulo 2^32, so that the order of additions does not matter; complete sums fit 32 bits, which is checked
  // when the step is made.
  static Integer add_products(Integer sum, Integer x, Integer w) { return add_pairs(sum, x, w); }
  static Integer requantized(Integer x, const Requantization& r, int part) {
    const Integer multiplier = load(r.multiplier + part * kCount);
    const Integer even = _mm256_mul_epi32(x, multiplier);
    const Integer odd = _mm256_mul_epi32(_mm256_srli_epi64(x, 32), _mm256_srli_epi64(multiplier, 32));
    const int at = part * kCount / 2;
    const Integer low = _mm256_srlv_epi64(_mm256_add_epi64(even, load(r.half[0] + at)), load(r.shift[0] + at));
    const Integer high = _mm256_srlv_epi64(_mm256_add_epi64(odd, load(r.half[1] + at)), load(r.shift[1] + at));
    const Integer joined = _mm256_blend_epi32(low, _mm256_slli_epi64(high, 32), 0xAA);
    return _mm256_add_epi32(joined, load(r.addend + part * kCount));
  }
  static Integer limited(Integer x, std::int32_t low, std::int32_t high) {
    return _mm256_min_epi32(_mm256_max_epi32(x, all(low)), all(high));
  }
  // The low bytes of the lanes, in the lower half of each 128-bit half.
  static Integer gather_low(Integer x, std::int64_t order) {
    return _mm256_shuffle_epi8(x, _mm256_setr_epi64x(order, -1, order, -1));
  }
  static void store_bytes(std::uint8_t* out, Integer x) {
    const Integer low = _mm256_permutevar8x32_epi32(gather_low(x, 0x808080800C080400), _mm256_setr_epi32(0, 4, 0, 0, 0, 0, 0, 0));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(out), _mm256_castsi256_si128(low));
  }
  static void store_words(std::uint8_t* out, Integer x) {
    const Integer low = _mm256_permute4x64_epi64(gather_low(x, 0x0D0C090805040100), 0x08);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm256_castsi256_si128(low));
  }
  static void store_reals(std::uint8_t* out, Integer x, std::int32_t zero, float scale) {
    const __m256 real = _mm256_cvtepi32_ps(_mm256_sub_epi32(x, all(zero)));
    _mm256_storeu_ps(reinterpret_cast<float*>(out), _mm256_mul_ps(real, _mm256_set1_ps(scale)));
  }
  static void copy(std::uint8_t* to, const std::uint8_t* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
  static void store(std::int32_t* to, Integer x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), x); }
  static Integer load_words(const std::int16_t* from) {
    return _mm256_cvtepi16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  static Integer pair_of(Integer x) {
    const Integer value = _mm256_min_epi32(x, all(32639));
    const Integer byte = _mm256_slli_epi32(_mm256_srai_epi32(_mm256_add_epi32(value, all(128)), 8), 16);
    return _mm256_blend_epi16(value, byte, 0xAA);
  }
};
