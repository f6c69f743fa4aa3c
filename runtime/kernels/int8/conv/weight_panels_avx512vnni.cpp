#include "int8/tile/transpose.h"
#include "int8/conv/weight_panels.h"

namespace tpuconvert::avx512 {
namespace {

constexpr int kQuads = 16;     // groups of four inputs in one register
constexpr int kMostTaps = 16;  // taps of four inputs in one register

std::size_t step_bytes(const WeightPanelTask& task) {
  return static_cast<std::size_t>(64 * task.full + 32 * task.half);
}

std::uint8_t* segment(const WeightPanelTask& task, int tap) {
  return task.to + static_cast<std::size_t>(tap) * (task.segment_bytes / 4) * step_bytes(task);
}

const std::uint8_t* tap_weights(const WeightPanelTask& task, int tap) {
  return task.weights + tap / task.kernel_w * task.y + tap % task.kernel_w * task.x;
}

// Prefetches to the second-level cache; the address may be invalid. Hardware prefetchers do not handle sixteen
// concurrent streams or large strides.
TPU_INLINE void prefetch(const std::uint8_t* weights) {
  _mm_prefetch(reinterpret_cast<const char*>(weights), _MM_HINT_T1);
}

// Packs weights with adjacent input channels: transposes blocks of 64 inputs and 16 output channels.
void pack_inputs(const WeightPanelTask& task, int accumulator) {
  const __m512i zero = _mm512_set1_epi8(static_cast<char>(task.zero));
  const Columns columns(accumulator, task.full);
  const int quads = (task.inputs + 3) / 4, next = lane_of(kLanes, task.full);
  const bool is_half = accumulator == task.full;
  __m512i sums = _mm512_setzero_si512(), magnitudes = sums;
  for (int tap = 0; tap < task.kernel_h * task.kernel_w; ++tap) {
    const std::uint8_t* from = tap_weights(task, tap);
    std::uint8_t* to = segment(task, tap) + 64 * accumulator;
    for (int quad = 0; quad < quads; quad += kQuads) {
      const __mmask64 mask = first_bytes(task.inputs - 4 * quad);
      __m512i x[16];
      unrolled<16>([&](auto i) TPU_INLINED {
        const int column = columns.of(i);
        x[i] = column < task.columns ? bytes_without(zero, from + column * task.out + 4 * quad, mask)
                                     : _mm512_setzero_si512();
        prefetch(from + (column + next) * task.out + 4 * quad);
      });
      transpose(x);
      unrolled<16>([&](auto i) TPU_INLINED {
        if (quad + i < quads) {
          add_quads(sums, x[i]);
          add_magnitudes(magnitudes, x[i]);
          store_accumulator(to, is_half, x[i]);
          to += step_bytes(task);
        }
      });
    }
  }
  _mm512_storeu_si512(task.sums + accumulator * kLanes, sums);
  _mm512_storeu_si512(task.magnitudes + accumulator * kLanes, magnitudes);
}

// Packs weights with contiguous [input][tap] per output channel: permutes and transposes the taps of four inputs and 16
// output channels at a time.
void pack_runs(const WeightPanelTask& task, int accumulator) {
  const __m512i zero = _mm512_set1_epi8(static_cast<char>(task.zero));
  const Columns columns(accumulator, task.full);
  const int quads = (task.inputs + 3) / 4, next = lane_of(kLanes, task.full);
  const int taps = task.kernel_h * task.kernel_w;
  const bool is_half = accumulator == task.full;
  const std::uint8_t* from = task.weights;
  std::uint8_t order[64] = {};
  for (int tap = 0; tap < taps; ++tap)
    for (int i = 0; i < 4; ++i) order[4 * tap + i] = static_cast<std::uint8_t>(i * taps + tap);
  const __m512i by_taps = _mm512_loadu_si512(order);
  __m512i sums = _mm512_setzero_si512(), magnitudes = sums;
  for (int quad = 0; quad < quads; ++quad, from += 4 * taps) {
    const int inputs = task.inputs - 4 * quad < 4 ? task.inputs - 4 * quad : 4;
    const __mmask64 mask = first_bytes(inputs * taps);
    __m512i x[16];
    unrolled<16>([&](auto i) TPU_INLINED {
      const int column = columns.of(i);
      x[i] = column < task.columns
                 ? _mm512_permutexvar_epi8(by_taps, bytes_without(zero, from + column * task.out, mask))
                 : _mm512_setzero_si512();
      prefetch(from + (column + next) * task.out);
    });
    transpose(x);
    unrolled<16>([&](auto i) TPU_INLINED {
      if (i < taps) {
        add_quads(sums, x[i]);
        add_magnitudes(magnitudes, x[i]);
        store_accumulator(segment(task, i) + static_cast<std::size_t>(quad) * step_bytes(task) + 64 * accumulator,
                          is_half, x[i]);
      }
    });
  }
  _mm512_storeu_si512(task.sums + accumulator * kLanes, sums);
  _mm512_storeu_si512(task.magnitudes + accumulator * kLanes, magnitudes);
}

constexpr int kAhead = 64;  // prefetch distance in inputs

// Packs weights with adjacent output channels: interleaves four inputs of all columns.
template <int Accumulators>
void pack_outputs(const WeightPanelTask& task) {
  const __m512i zero = _mm512_set1_epi8(static_cast<char>(task.zero));
  const __mmask64 mask = first_bytes(task.columns);
  __m512i sums[Accumulators], magnitudes[Accumulators];
  unrolled<Accumulators>([&](auto i) TPU_INLINED { sums[i] = magnitudes[i] = _mm512_setzero_si512(); });
  for (int tap = 0; tap < task.kernel_h * task.kernel_w; ++tap) {
    const std::uint8_t* from = tap_weights(task, tap);
    std::uint8_t* to = segment(task, tap);
    for (int input = 0; input < task.inputs; input += 4, from += 4 * task.in, to += step_bytes(task)) {
      __m512i rows[4];
      unrolled<4>([&](auto i) TPU_INLINED {
        rows[i] = input + i < task.inputs ? bytes_without(zero, from + i * task.in, mask) : _mm512_setzero_si512();
        prefetch(from + (kAhead + i) * task.in);
      });
      interleave<Accumulators != 4>(rows);
      unrolled<Accumulators>([&](auto i) TPU_INLINED {
        add_quads(sums[i], rows[i]);
        add_magnitudes(magnitudes[i], rows[i]);
        store_accumulator(to + 64 * i, i == task.full, rows[i]);
      });
    }
  }
  unrolled<Accumulators>([&](auto i) TPU_INLINED {
    _mm512_storeu_si512(task.sums + i * kLanes, sums[i]);
    _mm512_storeu_si512(task.magnitudes + i * kLanes, magnitudes[i]);
  });
}

bool is_run(const WeightPanelTask& task) {
  const int taps = task.kernel_h * task.kernel_w;
  return taps <= kMostTaps && task.in == taps && (task.kernel_h == 1 || task.y == task.kernel_w) &&
         (task.kernel_w == 1 || task.x == 1);
}

}  // namespace

bool covers_weights(const WeightPanelTask& task) {
  const std::int64_t weights = std::int64_t{task.kernel_h} * task.kernel_w * task.inputs;
  return weights <= 1 << 23 && (task.in == 1 || task.inputs == 1 || task.out == 1 || is_run(task));
}

void pack_weights_avx512vnni(const WeightPanelTask& task) {
  const int accumulators = task.full + (task.half ? 1 : 0);
  if (task.in == 1 || task.inputs == 1) {
    for (int i = 0; i < accumulators; ++i) pack_inputs(task, i);
  } else if (task.out == 1) {
    switch (accumulators) {
      case 1: return pack_outputs<1>(task);
      case 2: return pack_outputs<2>(task);
      case 3: return pack_outputs<3>(task);
      default: return pack_outputs<4>(task);
    }
  } else {
    for (int i = 0; i < accumulators; ++i) pack_runs(task, i);
  }
}

}  // namespace tpuconvert::avx512
