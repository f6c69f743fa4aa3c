// Tensors of any element type, and blocks of their elements in 64-bit integers or binary32. The kernels of this folder
// compute operators that are rare in networks: one scalar implementation, which the compiler vectorizes for the baseline.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/step.h"
#include "general/half.h"

namespace tpuconvert {

enum class AnyType { kS8, kU8, kI16, kU16, kI32, kU32, kF16, kF32 };  // kS8 is stored with kStoredBias

// Throws std::invalid_argument for an unknown name: "s8", "u8", "i16", "u16", "i32", "u32", "f16", "f32".
AnyType any_type(const std::string& name);

constexpr std::int64_t size_of(AnyType type) {
  return type <= AnyType::kU8 ? 1 : type == AnyType::kI16 || type == AnyType::kU16 || type == AnyType::kF16 ? 2 : 4;
}

constexpr bool is_float(AnyType type) { return type >= AnyType::kF16; }

// A strided tensor. Strides are in elements and not negative; broadcast axes have stride 0.
struct AnyTensor {
  Place place;
  AnyType type = AnyType::kF32;
  std::vector<std::int64_t> strides;
};

// Bytes from the first to the last element of a tensor. Throws std::invalid_argument for invalid strides or extents.
std::size_t bytes_of(const AnyTensor& tensor, const std::vector<std::int64_t>& shape);

// Copies `count` elements with a stride to contiguous lanes. Integers fit 64 bits, and 32 bits except UINT32; floats are
// exact in binary32.
void load_lanes(AnyType type, const std::uint8_t* from, std::int64_t stride, std::int64_t count, std::int64_t* lanes);
void load_lanes(AnyType type, const std::uint8_t* from, std::int64_t stride, std::int64_t count, std::int32_t* lanes);
void load_lanes(AnyType type, const std::uint8_t* from, std::int64_t stride, std::int64_t count, float* lanes);

// Stores lanes. Integers are taken modulo the range of the type; floats are rounded to binary16 once.
void store_lanes(AnyType type, std::uint8_t* to, std::int64_t stride, std::int64_t count, const std::int64_t* lanes);
void store_lanes(AnyType type, std::uint8_t* to, std::int64_t stride, std::int64_t count, const std::int32_t* lanes);
void store_lanes(AnyType type, std::uint8_t* to, std::int64_t stride, std::int64_t count, const float* lanes);

// The nearest integer, ties away from zero, saturated to 32 bits; 0 for NaN.
std::int64_t round_half_away(float value);

}  // namespace tpuconvert
