// Words of the matmul of INT8 activations with group-quantized weights in registers of AArch64. The including file
// defines `kByteOffset` and `add_byte_products`.
#pragma once

namespace tpuconvert {
namespace {

constexpr int kInt8TileRows = 2;
constexpr bool kInt8DecodesTwoPanels = false;

// Four words of four bytes or of one integer.
struct Words {
  uint32x4_t v;

  // Number by which stored codes are larger than the bytes that `add_products` multiplies.
  template <int kBits>
  static constexpr int offset() {
    return kBits == 8 ? kByteOffset : 0;
  }
  FLOAT_INLINE static Words load(const void* from) {
    return {vreinterpretq_u32_u8(vld1q_u8(static_cast<const std::uint8_t*>(from)))};
  }
  FLOAT_INLINE static Words broadcast(const void* from) {
    std::uint32_t word;
    std::memcpy(&word, from, sizeof word);
    return {vdupq_n_u32(word)};
  }
  FLOAT_INLINE Words low_nibbles() const { return {vandq_u32(v, vdupq_n_u32(0x0F0F0F0Fu))}; }
  FLOAT_INLINE Words high_nibbles() const { return {vreinterpretq_u32_u8(vshrq_n_u8(vreinterpretq_u8_u32(v), 4))}; }
  // Adds the dot products of four bytes of `codes` and four signed bytes of `x`.
  template <int kBits>
  FLOAT_INLINE void add_products(Words codes, Words x) {
    const int32x4_t sum = vreinterpretq_s32_u32(v);
    v = vreinterpretq_u32_s32(
        add_byte_products<kBits>(sum, vreinterpretq_u8_u32(codes.v), vreinterpretq_s8_u32(x.v)));
  }
  FLOAT_INLINE Float to_float() const { return {vcvtq_f32_s32(vreinterpretq_s32_u32(v))}; }
};

}  // namespace
}  // namespace tpuconvert
