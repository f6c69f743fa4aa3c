#include "float32/vector_scalar.h"

namespace tpuconvert {
namespace {

constexpr int kGroupSums = 4;

// Words of eight 4-bit codes, the next one in the low-order bits.
struct Nibbles {
  Lanes<std::uint32_t, Float::kLanes> v;

  FLOAT_INLINE static Nibbles load(const std::uint8_t* from) {
    Nibbles words;
    std::memcpy(&words.v.lane, from, sizeof words.v.lane);
    return words;
  }
  FLOAT_INLINE Float value() const {
    return {each_lane<float, Float::kLanes>([&](int i) { return static_cast<float>(v.lane[i] & 15); })};
  }
  FLOAT_INLINE Float centered_value() const { return value() - Float::broadcast(8.0f); }
  FLOAT_INLINE void advance() {
    v.lane >>= 4;
  }
};

}  // namespace
}  // namespace tpuconvert

// Uses the vector types above.
#include "float32/matmul/group_matmul_tile.h"

namespace tpuconvert {

const GroupMatmulKernels kGroupMatmulScalar{Float::kLanes, decode, dequantize};

}  // namespace tpuconvert
