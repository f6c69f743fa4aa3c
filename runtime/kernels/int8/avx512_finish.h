// From sums to stored results, for epilogues that are not computed inside the kernels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "int8/epilogue.h"

namespace tpuconvert::avx512 {

class Finish {
 public:
  explicit Finish(const Epilogue& epilogue) : epilogue_(epilogue) {}

  // Sums of `channels` channels from `first` on in every row, `stride` elements from row to row. `outputs` are the
  // addresses of the pixels.
  void run(int first, int channels, int rows, const std::int32_t* sums, std::ptrdiff_t stride,
           std::uint8_t* const* outputs) const {
    const std::size_t offset = static_cast<std::size_t>(first) * static_cast<std::size_t>(epilogue_.bytes());
    epilogue_.apply_rows({sums, stride, rows, outputs, offset}, first, channels);
  }

  std::size_t bytes() const { return 0; }

 private:
  const Epilogue& epilogue_;
};

}  // namespace tpuconvert::avx512
