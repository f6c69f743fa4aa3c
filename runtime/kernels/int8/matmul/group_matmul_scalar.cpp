#include "float32/vector_scalar.h"

namespace tpuconvert {
namespace {

constexpr int kInt8TileRows = 2;
constexpr bool kInt8DecodesTwoPanels = false;

// Words of four bytes or of one integer.
struct Words {
  Lanes<std::uint32_t, Float::kLanes> v;

  // Number by which stored codes are larger than the bytes that `add_products` multiplies.
  template <int kBits>
  static constexpr int offset() {
    return 0;
  }
  FLOAT_INLINE static Words load(const void* from) {
    Words words;
    std::memcpy(&words.v.lane, from, sizeof words.v.lane);
    return words;
  }
  FLOAT_INLINE static Words broadcast(const void* from) {
    std::uint32_t word;
    std::memcpy(&word, from, sizeof word);
    return {each_lane<std::uint32_t, Float::kLanes>([&](int) { return word; })};
  }
  FLOAT_INLINE Words low_nibbles() const {
    return {each_lane<std::uint32_t, Float::kLanes>([&](int i) { return v.lane[i] & 0x0F0F0F0Fu; })};
  }
  FLOAT_INLINE Words high_nibbles() const {
    return {each_lane<std::uint32_t, Float::kLanes>([&](int i) { return v.lane[i] >> 4 & 0x0F0F0F0Fu; })};
  }
  // Adds the dot products of four unsigned bytes of `codes` and four signed bytes of `x`.
  template <int kBits>
  FLOAT_INLINE void add_products(Words codes, Words x) {
    for (int i = 0; i < Float::kLanes; ++i) {
      std::int32_t sum = 0;
      for (int shift = 0; shift < 32; shift += 8)
        sum += static_cast<std::int32_t>(codes.v.lane[i] >> shift & 255u) * static_cast<std::int8_t>(x.v.lane[i] >> shift & 255u);
      v.lane[i] += static_cast<std::uint32_t>(sum);
    }
  }
  FLOAT_INLINE Float to_float() const {
    return {each_lane<float, Float::kLanes>([&](int i) { return static_cast<float>(static_cast<std::int32_t>(v.lane[i])); })};
  }
};

}  // namespace
}  // namespace tpuconvert

// Uses the vector types above.
#include "int8/matmul/group_matmul_tile.h"

namespace tpuconvert {

const Int8GroupKernels kInt8GroupScalar{Float::kLanes, quantize, multiply};

}  // namespace tpuconvert
