// Float32 matmul with constant weights in integers of 4 or 8 bits and one scale per group of the inner axis.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/aligned.h"
#include "core/isa.h"
#include "core/step.h"

namespace tpuconvert {

// y[m, n] = sum of x[m, k] * (code[n, k] - zero[n, g]) * scale[n, g] over k, plus bias[n], with g = k / group.
struct GroupMatmulSpec {
  Place x, y;
  std::int64_t rows = 1, columns = 1, depth = 1;
  int bits = 4, group = 32;
  const std::uint8_t* codes = nullptr;  // [columns, groups * group * bits / 8], read by the constructor only
  std::int64_t code_bytes = 0;
  std::vector<float> scale;             // [columns, groups]
  std::vector<float> zero;              // [columns, groups], or empty: 2^(bits - 1)
  std::vector<float> bias;              // [columns], or empty
  bool is_precise = false;              // accumulates in float64 and rounds once
  std::shared_ptr<const Step> like;     // step of another plan for the same weights, whose packed weights may be shared
};

// Packed weights and bias, which the steps of several plans may share.
struct PackedGroups {
  AlignedBytes codes, scale, zero, bias;

  std::size_t bytes() const { return codes.size() + scale.size() + zero.size() + bias.size(); }
};

// Throws std::invalid_argument for invalid extents and sizes; the message begins with the name of the kernel.
void check_group_matmul(const GroupMatmulSpec& spec, const char* kernel);

// Throws std::invalid_argument for invalid extents and sizes.
std::shared_ptr<Step> make_group_matmul(const GroupMatmulSpec& spec, Isa isa);

}  // namespace tpuconvert
