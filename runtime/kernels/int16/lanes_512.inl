// Registers of 16 lanes for conv_kernels.inl and byte_products.inl.

struct Lanes {
  using Integer = __m512i;
  static constexpr int kCount = 16;
  static constexpr int kRows = 12;
  static constexpr bool kHasFactors = true;

  static Integer load(const void* from) { return _mm512_loadu_si512(from); }
  static Integer all(std::int32_t value) { return _mm512_set1_epi32(value); }
  // Sums wrap modulo 2^32, so that the order of additions does not matter; complete sums fit 32 bits, which is checked
  // when the step is made.
  static Integer add_products(Integer sum, Integer x, Integer w) { return _mm512_dpwssd_epi32(sum, x, w); }
  static Integer requantized(Integer x, const Requantization& r, int) {
    const Integer multiplier = load(r.multiplier);
    const Integer even = _mm512_mul_epi32(x, multiplier);
    const Integer odd = _mm512_mul_epi32(_mm512_srli_epi64(x, 32), _mm512_srli_epi64(multiplier, 32));
    const Integer low = _mm512_srlv_epi64(_mm512_add_epi64(even, load(r.half[0])), load(r.shift[0]));
    const Integer high = _mm512_srlv_epi64(_mm512_add_epi64(odd, load(r.half[1])), load(r.shift[1]));
    return _mm512_add_epi32(_mm512_mask_shuffle_epi32(low, 0xAAAA, high, _MM_PERM_CCAA), load(r.addend));
  }
  // The multiply-add and the conversion round down, so that together they give the floor of the exact value.
  static Integer multiplied(Integer x, const Panel& panel, int) {
    constexpr int kDown = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC;
    const __m512 factor = _mm512_load_ps(panel.factor), addend = _mm512_load_ps(panel.addend);
    return _mm512_cvt_roundps_epi32(_mm512_fmadd_round_ps(_mm512_cvtepi32_ps(x), factor, addend, kDown), kDown);
  }
  static Integer limited(Integer x, std::int32_t low, std::int32_t high) {
    return _mm512_min_epi32(_mm512_max_epi32(x, all(low)), all(high));
  }
  static void store_bytes(std::uint8_t* out, Integer x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm512_cvtepi32_epi8(x));
  }
  // Stores four vectors of results, limited to low..high, at a distance of `pitch` bytes.
  static void store_limited(const Integer (&values)[4], std::int32_t low, std::int32_t high, std::uint8_t* out,
                            std::ptrdiff_t pitch) {
    const Integer packed = _mm512_packus_epi16(_mm512_packs_epi32(values[0], values[1]), _mm512_packs_epi32(values[2], values[3]));
    // Packing interleaves groups of four lanes.
    const Integer order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const Integer bytes = _mm512_min_epu8(_mm512_max_epu8(_mm512_permutexvar_epi32(order, packed), _mm512_set1_epi8(static_cast<char>(low))),
                                          _mm512_set1_epi8(static_cast<char>(high)));
    if (pitch == kCount) {
      _mm512_storeu_si512(out, bytes);
      return;
    }
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm512_castsi512_si128(bytes));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + pitch), _mm512_extracti32x4_epi32(bytes, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 2 * pitch), _mm512_extracti32x4_epi32(bytes, 2));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 3 * pitch), _mm512_extracti32x4_epi32(bytes, 3));
  }
  static void store_words(std::uint8_t* out, Integer x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm512_cvtepi32_epi16(x));
  }
  static void store_reals(std::uint8_t* out, Integer x, std::int32_t zero, float scale) {
    _mm512_storeu_ps(out, _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(x, all(zero))), _mm512_set1_ps(scale)));
  }
  static void copy(std::uint8_t* to, const std::uint8_t* from, std::size_t bytes) {  // fewer than 64
    const __mmask64 mask = (__mmask64{1} << bytes) - 1;
    _mm512_mask_storeu_epi8(to, mask, _mm512_maskz_loadu_epi8(mask, from));
  }
  static void store(std::int32_t* to, Integer x) { _mm512_storeu_si512(to, x); }
  static Integer load_words(const std::int16_t* from) {
    return _mm512_cvtepi16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  // Stores the pairs of 32 words.
  static void store_pairs(const std::int16_t* from, std::int32_t* to) {
    // Groups of four words in the order in which the unpack instructions read them.
    const Integer order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
    const Integer value = _mm512_min_epi16(_mm512_permutexvar_epi64(order, load(from)), _mm512_set1_epi16(32639));
    const Integer byte = _mm512_srai_epi16(_mm512_add_epi16(value, _mm512_set1_epi16(128)), 8);
    store(to, _mm512_unpacklo_epi16(value, byte));
    store(to + kCount, _mm512_unpackhi_epi16(value, byte));
  }
  static Integer pair_of(Integer x) {
    const Integer value = _mm512_min_epi32(x, all(32639));
    const Integer byte = _mm512_slli_epi32(_mm512_srai_epi32(_mm512_add_epi32(value, all(128)), 8), 16);
    return _mm512_mask_blend_epi16(0xAAAAAAAA, value, byte);
  }
};
