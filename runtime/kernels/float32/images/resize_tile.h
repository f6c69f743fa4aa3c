// Bilinear resize of channels-last images: first along rows, then between rows. Every operation is rounded to float32,
// as in the reference. Include after the vector header of an instruction set.
#pragma once

#include "float32/epilogue.h"
#include "float32/images/images.h"

namespace tpuconvert {
namespace {

void run_resize(const ResizeTask& task, std::int64_t first, std::int64_t last, const float* input, float* output) {
  for (std::int64_t row = first; row < last; ++row) {
    const std::int64_t n = row / task.out_height;
    const Interpolation& down = task.rows[row % task.out_height];
    const float* above = input + n * task.in_image + down.low * task.in_row;
    const float* below = input + n * task.in_image + down.high * task.in_row;
    const Float weight = Float::broadcast(down.weight);
    float* to = output + row * task.out_width * task.channels;
    for (int column = 0; column < task.out_width; ++column, to += task.channels) {
      const Interpolation& along = task.columns[column];
      const std::ptrdiff_t low = along.low * task.in_pixel, high = along.high * task.in_pixel;
      const Float across = Float::broadcast(along.weight);
      for (int channel = 0; channel < task.channels; channel += Float::kLanes) {
        const int left = task.channels - channel, lanes = left < Float::kLanes ? left : Float::kLanes;
        const Float a = load_lanes(above + low + channel, lanes), b = load_lanes(above + high + channel, lanes);
        const Float c = load_lanes(below + low + channel, lanes), d = load_lanes(below + high + channel, lanes);
        const Float top = a + (b - a) * across, bottom = c + (d - c) * across;
        store_lanes(top + (bottom - top) * weight, to + channel, lanes);
      }
    }
  }
}

}  // namespace
}  // namespace tpuconvert
