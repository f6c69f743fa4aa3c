// Max and average pooling of channels-last images. Included after the vector header of an
// instruction set. Averages are summed in float64, row by row, and rounded once.
#pragma once

#include "float32/epilogue.h"
#include "float32/images/images.h"

namespace tpuconvert {
namespace {

// The taps of a window that are inside the image.
struct Inside {
  int begin, end;
};

FLOAT_INLINE Inside inside(int start, int size, int extent) {
  const int stop = start + size;
  return {start < 0 ? 0 : start, stop > extent ? extent : stop};
}

void run_pool(const PoolTask& task, std::int64_t first, std::int64_t last, const float* input, float* output) {
  for (std::int64_t row = first; row < last; ++row) {
    const std::int64_t n = row / task.out_height, oy = row % task.out_height;
    const Inside down = inside(static_cast<int>(oy) * task.stride_h - task.pad_top, task.kernel_h, task.height);
    for (int ox = 0; ox < task.out_width; ++ox) {
      const Inside along = inside(ox * task.stride_w - task.pad_left, task.kernel_w, task.width);
      const float* image = input + n * task.in_image;
      float* to = output + n * task.out_image + oy * task.out_row + ox * task.out_pixel;
      for (int channel = 0; channel < task.channels; channel += Float::kLanes) {
        const int left = task.channels - channel, lanes = left < Float::kLanes ? left : Float::kLanes;
        if (task.is_max) {
          Float most = Float::broadcast(-__builtin_inff());
          for (int y = down.begin; y < down.end; ++y)
            for (int x = along.begin; x < along.end; ++x) {
              const Float value = load_lanes(image + y * task.in_row + x * task.in_pixel + channel, lanes);
              most = select(is_nan(most), most, larger(most, value));
            }
          store_lanes(most, to + channel, lanes);
          continue;
        }
        Double sum[2] = {Double::zero(), Double::zero()};
        for (int y = down.begin; y < down.end; ++y)
          for (int x = along.begin; x < along.end; ++x) {
            Double value[2];
            widen(load_lanes(image + y * task.in_row + x * task.in_pixel + channel, lanes), value);
            sum[0] = sum[0] + value[0];
            sum[1] = sum[1] + value[1];
          }
        const Double divisor = Double::broadcast(task.divisors[oy * task.out_width + ox]);
        sum[0] = sum[0] / divisor;
        sum[1] = sum[1] / divisor;
        store_lanes(narrow(sum), to + channel, lanes);
      }
    }
  }
}

}  // namespace
}  // namespace tpuconvert
