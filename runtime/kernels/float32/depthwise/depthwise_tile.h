// Depthwise kernels over the vector types of one instruction set; included by one file per instruction set, after its
// vector header. Every sum is one chain of fused multiply-adds in the order of the taps, starting with the bias.
#pragma once

#include "float32/depthwise/depthwise.h"
#include "float32/epilogue.h"
#include "float32/unroll.h"

namespace tpuconvert {
namespace {

// Location of a row of the result and of the image rows that it reads.
struct DepthwisePlace {
  const float* image;
  int y;                  // first image row under the window; negative in the top padding
  std::ptrdiff_t output;  // floats from the start of the result
};

FLOAT_INLINE DepthwisePlace place_of(const DepthwiseTask& task, std::int64_t row, const float* input) {
  const std::int64_t n = row / task.out_height, y = row % task.out_height;
  return {input + n * task.in_image, static_cast<int>(y) * task.stride_h - task.pad_top,
          static_cast<std::ptrdiff_t>(n * task.out_image + y * task.out_row)};
}

// Address of a pixel; outside of the image, address of zeros.
FLOAT_INLINE const float* pixel_of(const DepthwiseTask& task, const float* image, int y, int x) {
  const bool is_inside = y >= 0 && y < task.height && x >= 0 && x < task.width;
  return is_inside ? image + y * task.in_row + x * task.in_pixel : task.zeros;
}

FLOAT_INLINE void store_pixel(const DepthwiseTask& task, Float sum, const float* residual, float* to, int n) {
  if (residual != nullptr) sum = sum + load_lanes(residual, n);
  if (task.limits.are_set) sum = LimitLanes(task.limits)(sum);
  store_lanes(sum, to, n);
}

// Computes kRows x kColumns results of a square kernel without dilation, so that each loaded pixel is used for all
// results whose window contains it.
template <int kKernel, int kStride, int kRows, int kColumns>
__attribute__((noinline)) void depthwise_block(const DepthwiseTask& task, const DepthwisePlace& place, int column,
                                               const float* residual, float* output) {
  constexpr int kHeight = (kRows - 1) * kStride + kKernel, kWidth = (kColumns - 1) * kStride + kKernel;
  const float* pixels[kHeight][kWidth];
  const int x = column * kStride - task.pad_left;
  for (int i = 0; i < kHeight; ++i)
    for (int j = 0; j < kWidth; ++j) pixels[i][j] = pixel_of(task, place.image, place.y + i, x + j);
  const std::ptrdiff_t start = place.output + column * task.out_pixel;
  for (int channel = 0; channel < task.channels; channel += Float::kLanes) {
    const int left = task.channels - channel;
    const int n = left < Float::kLanes ? left : Float::kLanes;
    const float* weights = task.weights + channel;
    Float sum[kRows][kColumns];
    const Float bias = Float::load(task.bias + channel);
    unroll<kRows>(UNROLLED(r) {
      unroll<kColumns>(UNROLLED(c) { sum[r.value][c.value] = bias; });
    });
    unroll<kHeight>(UNROLLED(i) {
      unroll<kWidth>(UNROLLED(j) {
        const Float value = load_lanes(pixels[i.value][j.value] + channel, n);
        unroll<kRows>(UNROLLED(r) {
          unroll<kColumns>(UNROLLED(c) {
            constexpr int kDown = i.value - r.value * kStride, kAlong = j.value - c.value * kStride;
            if constexpr (kDown >= 0 && kDown < kKernel && kAlong >= 0 && kAlong < kKernel) {
              const Float weight = Float::load(weights + (kDown * kKernel + kAlong) * task.stride);
              sum[r.value][c.value] = fused(value, weight, sum[r.value][c.value]);
            }
          });
        });
      });
    });
    unroll<kRows>(UNROLLED(r) {
      unroll<kColumns>(UNROLLED(c) {
        const std::ptrdiff_t at = start + r.value * task.out_row + c.value * task.out_pixel + channel;
        store_pixel(task, sum[r.value][c.value], residual == nullptr ? nullptr : residual + at, output + at, n);
      });
    });
  }
}

// Computes one result of a kernel of any shape.
FLOAT_INLINE void depthwise_pixel(const DepthwiseTask& task, const DepthwisePlace& place, int column,
                                  const float* residual, float* output) {
  const int x = column * task.stride_w - task.pad_left;
  const std::ptrdiff_t start = place.output + column * task.out_pixel;
  for (int channel = 0; channel < task.channels; channel += Float::kLanes) {
    const int left = task.channels - channel;
    const int n = left < Float::kLanes ? left : Float::kLanes;
    const float* weights = task.weights + channel;
    Float sum = Float::load(task.bias + channel);
    for (int i = 0; i < task.kernel_h; ++i)
      for (int j = 0; j < task.kernel_w; ++j, weights += task.stride) {
        const float* pixel = pixel_of(task, place.image, place.y + i * task.dilation_h, x + j * task.dilation_w);
        sum = fused(load_lanes(pixel + channel, n), Float::load(weights), sum);
      }
    const std::ptrdiff_t at = start + channel;
    store_pixel(task, sum, residual == nullptr ? nullptr : residual + at, output + at, n);
  }
}

template <int kKernel, int kStride, int kRows, int kColumns>
FLOAT_INLINE void depthwise_rows(const DepthwiseTask& task, std::int64_t row, const float* input, const float* residual,
                                 float* output) {
  const DepthwisePlace place = place_of(task, row, input);
  if (task.out_width < kColumns) {
    for (int column = 0; column < task.out_width; ++column)
      depthwise_block<kKernel, kStride, kRows, 1>(task, place, column, residual, output);
    return;
  }
  // The last block is moved left to end at the last column. It recomputes some results with the same values.
  for (int column = 0; column < task.out_width; column += kColumns) {
    const int last = task.out_width - kColumns;
    depthwise_block<kKernel, kStride, kRows, kColumns>(task, place, column < last ? column : last, residual, output);
  }
}

template <int kKernel, int kStride, int kRows, int kColumns>
FLOAT_INLINE void depthwise_square(const DepthwiseTask& task, std::int64_t first, std::int64_t last, const float* input,
                                   const float* residual, float* output) {
  for (std::int64_t row = first; row < last;) {
    // A block must not cross from one image to the next.
    const bool has_rows = row + kRows <= last && row % task.out_height + kRows <= task.out_height;
    if (has_rows) {
      depthwise_rows<kKernel, kStride, kRows, kColumns>(task, row, input, residual, output);
      row += kRows;
    } else {
      depthwise_rows<kKernel, kStride, 1, kColumns>(task, row, input, residual, output);
      row += 1;
    }
  }
}

// kRows is the number of rows of a block with stride 1, limited by the number of registers of the instruction set.
template <int kRows>
void run_depthwise(const DepthwiseTask& task, std::int64_t first, std::int64_t last, const float* input,
                   const float* residual, float* output) {
  const bool is_plain = task.kernel_h == task.kernel_w && task.stride_h == task.stride_w && task.dilation_h == 1 &&
                        task.dilation_w == 1;
  const int code = is_plain ? task.kernel_h * 10 + task.stride_h : 0;
  switch (code) {
    case 31:
      return depthwise_square<3, 1, kRows, 4>(task, first, last, input, residual, output);
    case 32:
      return depthwise_square<3, 2, 1, 4>(task, first, last, input, residual, output);
    case 51:
      return depthwise_square<5, 1, 1, 4>(task, first, last, input, residual, output);
    case 52:
      return depthwise_square<5, 2, 1, 4>(task, first, last, input, residual, output);
    default:
      break;
  }
  for (std::int64_t row = first; row < last; ++row) {
    const DepthwisePlace place = place_of(task, row, input);
    for (int column = 0; column < task.out_width; ++column) depthwise_pixel(task, place, column, residual, output);
  }
}

void run_precise_depthwise(const DepthwiseTask& task, std::int64_t first, std::int64_t last, const float* input,
                           const float* residual, float* output) {
  constexpr int kHalves = Float::kLanes / Double::kLanes;
  for (std::int64_t row = first; row < last; ++row) {
    const DepthwisePlace place = place_of(task, row, input);
    for (int column = 0; column < task.out_width; ++column) {
      const int x = column * task.stride_w - task.pad_left;
      for (int channel = 0; channel < task.channels; channel += Float::kLanes) {
        const int left = task.channels - channel;
        const int n = left < Float::kLanes ? left : Float::kLanes;
        const float* weights = task.weights + channel;
        Double sum[kHalves];
        for (int half = 0; half < kHalves; ++half) sum[half] = Double::load(task.bias + channel + half * Double::kLanes);
        alignas(64) float values[Float::kLanes];
        for (int i = 0; i < task.kernel_h; ++i)
          for (int j = 0; j < task.kernel_w; ++j, weights += task.stride) {
            load_lanes(pixel_of(task, place.image, place.y + i * task.dilation_h, x + j * task.dilation_w) + channel, n)
                .store(values);
            for (int half = 0; half < kHalves; ++half)
              sum[half] = fused(Double::load(values + half * Double::kLanes),
                                Double::load(weights + half * Double::kLanes), sum[half]);
          }
        for (int half = 0; half < kHalves; ++half) sum[half].store(values + half * Double::kLanes);
        const std::ptrdiff_t at = place.output + column * task.out_pixel + channel;
        store_pixel(task, Float::load(values), residual == nullptr ? nullptr : residual + at, output + at, n);
      }
    }
  }
}

}  // namespace
}  // namespace tpuconvert
