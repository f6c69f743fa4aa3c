// Residual add of stored bytes with integer multipliers and one rounding shift:
//
//   stored = min(max((factor * computed + other_factor * other + offset) >> shift, low), high)
//
// The offset includes the rounding constant and the zero points.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/aligned.h"
#include "core/isa.h"
#include "core/step.h"
#include "int8/epilogue/residual_rows.h"

namespace tpuconvert {

// Vectors have one element, or one per channel. `pixel`, `row` and `image` are the strides of the other tensor in
// bytes; its channels are adjacent.
struct ResidualSpec {
  Place other;
  std::ptrdiff_t pixel = 0, row = 0, image = 0;
  std::vector<std::int32_t> factor, other_factor;  // -2^15..2^15 - 1
  std::vector<std::int32_t> offset;
  int shift = 0;          // 0..31
  int low = 0, high = 255;
};

class Residual {
 public:
  // Throws std::invalid_argument for vectors of the wrong length, multipliers of more than 16 bits, and sums that may
  // overflow 32 bits.
  Residual(const ResidualSpec& spec, int channels, Isa isa);

  // Adds the parameters of channels first..first+count-1. With `repeats`, they are repeated for contiguous pixels;
  // otherwise, they cover one pixel.
  struct Panel {
    std::size_t at;
    int blocks;
  };
  Panel add_panel(int first, int count, bool repeats);

  // Adds to `rows` rows of `count` bytes in place. `offset` is added to each address.
  void run(const Panel& panel, int rows, std::size_t count, std::size_t offset, std::uint8_t* const* bytes,
           const std::uint8_t* const* others) const {
    const ResidualRows work{factors(panel), offsets(panel), panel.blocks, shift_, low_, high_,
                            rows,           count,          offset,       bytes,  others};
    function_(work);
  }

  // Parameters of run(), for kernels that include the residual add.
  const std::int32_t* factors(const Panel& panel) const { return parameters_.data() + panel.at; }
  const std::int32_t* offsets(const Panel& panel) const { return factors(panel) + panel.blocks * kResidualBlock; }
  int shift() const { return shift_; }
  std::uint8_t low() const { return low_; }
  std::uint8_t high() const { return high_; }

  std::size_t bytes() const { return parameters_.size() * sizeof(std::int32_t); }

 private:
  ResidualSpec spec_;
  int channels_;
  const std::int32_t* order_;  // [parameter], index of its element in a block
  ResidualFunction function_;
  int shift_;
  std::uint8_t low_, high_;
  std::vector<std::int32_t> parameters_;
};

}  // namespace tpuconvert
