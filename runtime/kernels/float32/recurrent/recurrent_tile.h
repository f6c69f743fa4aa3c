// Steps of recurrent layers. Include after the vector header of an instruction set.
#pragma once

#include <cstddef>
#include <cstring>

#include "float32/elementwise/sigmoid.h"
#include "float32/recurrent/recurrent.h"

namespace tpuconvert {
namespace {

template <typename V>
struct NumberOf;
template <>
struct NumberOf<Float> {
  using type = float;
};
template <>
struct NumberOf<Double> {
  using type = double;
};

// tanh(x), within 2 ULP: a Taylor polynomial near 0, 1 - 2 * sigmoid(-2 |x|) elsewhere.
FLOAT_INLINE Float tangent(Float x) {
  const auto number = [](float value) __attribute__((always_inline)) { return Float::broadcast(value); };
  const Float size = magnitude(x), square = x * x;
  Float p = number(-929569.0f / 638512875.0f);
  for (const float c : {21844.0f / 6081075.0f, -1382.0f / 155925.0f, 62.0f / 2835.0f, -17.0f / 315.0f, 2.0f / 15.0f, -1.0f / 3.0f})
    p = fused(p, square, number(c));
  const Float near_zero = fused(x * square, p, x);
  const Float far = fused(sigmoid(number(-2.0f) * size), number(-2.0f), number(1.0f));
  return select(size < number(0.5f), near_zero, with_sign_of(far, x));
}

// A function of two float64 vectors.
template <typename F>
FLOAT_INLINE Float by_double(Float x, F&& function) {
  Double halves[2];
  widen(x, halves);
  halves[0] = function(halves[0]);
  halves[1] = function(halves[1]);
  return narrow(halves);
}

// Not inlined: it is called at several places of every tile, and its code is large.
__attribute__((noinline)) Float apply(const CellActivation& activation, Float x) {
  const Float alpha = Float::broadcast(static_cast<float>(activation.alpha));
  const Float beta = Float::broadcast(static_cast<float>(activation.beta));
  const Float zero = Float::zero(), one = Float::broadcast(1.0f);
  switch (activation.function) {
    case CellFunction::kSigmoid: return sigmoid(x);
    case CellFunction::kTanh: return tangent(x);
    case CellFunction::kRelu: return larger(zero, x);
    case CellFunction::kAffine: return alpha * x + beta;
    case CellFunction::kLeakyRelu: return select(x < zero, alpha * x, x);
    case CellFunction::kThresholdedRelu: return select(alpha < x, x, zero * x);
    case CellFunction::kScaledTanh: return alpha * tangent(beta * x);
    case CellFunction::kHardSigmoid: return smaller(one, larger(zero, alpha * x + beta));
    case CellFunction::kElu:
      return select(x < zero, alpha * by_double(x, [](Double v) __attribute__((always_inline)) { return exponential_minus_one(v); }), x);
    case CellFunction::kSoftsign: return x / (one + magnitude(x));
    case CellFunction::kSoftplus:
      return by_double(x, [](Double v) __attribute__((always_inline)) { return softplus(v); });
  }
  return x;
}

__attribute__((noinline)) Double apply(const CellActivation& activation, Double x) {
  double lanes[Double::kLanes];
  x.store(lanes);
  for (double& lane : lanes) lane = precise_function(activation, lane);
  return Double::load(lanes);
}

template <typename V>
FLOAT_INLINE V number(double x) {
  return V::broadcast(static_cast<typename NumberOf<V>::type>(x));
}

// Clips to [-limit, limit]; a limit of 0 means none.
template <typename V>
FLOAT_INLINE V clip(V x, double limit) {
  return limit > 0 ? larger(number<V>(-limit), smaller(number<V>(limit), x)) : x;
}

// States of the rows of a tile: [row][padded units] each.
template <typename V>
struct TileState {
  using Number = typename NumberOf<V>::type;

  TileState(std::uint8_t* scratch, int rows, std::int64_t padded) : stride(padded) {
    const std::int64_t count = rows * padded;
    update = reinterpret_cast<Number*>(scratch);
    reset_hidden = update + count;
    float* floats = reinterpret_cast<float*>(reset_hidden + count);
    for (int k = 0; k < 2; ++k) {
      hidden[k] = floats + k * count;
      cell[k] = floats + (2 + k) * count;
    }
    std::memset(scratch, 0, static_cast<std::size_t>(count) * (2 * sizeof(Number) + 4 * sizeof(float)));
  }

  std::int64_t stride;
  Number *update, *reset_hidden;  // of a GRU
  float *hidden[2], *cell[2];     // before and after a step
};

// Adds state @ weights for `kBlocks` blocks and `kRows` rows.
template <typename V, int kGates, int kBlocks, int kRows, typename T>
FLOAT_INLINE void add_product(const T* state, std::int64_t stride, std::int64_t units, const float* panel,
                              V (&sums)[kRows][kBlocks][kGates]) {
  const std::int64_t block = units * kGates * V::kLanes;
  for (std::int64_t k = 0; k < units; ++k) {
    V values[kRows];
    unroll<kRows>(UNROLLED(row) { values[row.value] = V::broadcast(state[row.value * stride + k]); });
    unroll<kBlocks>(UNROLLED(b) {
      unroll<kGates>(UNROLLED(g) {
        const V w = V::load(panel + b.value * block + (k * kGates + g.value) * V::kLanes);
        unroll<kRows>(UNROLLED(row) {
          sums[row.value][b.value][g.value] = fused(values[row.value], w, sums[row.value][b.value][g.value]);
        });
      });
    });
  }
}

// One step of `kRows` rows.
template <typename V, CellKind kKind, int kRows>
class TileStep {
 public:
  static constexpr int kGates = kKind == CellKind::kLstm ? 4 : kKind == CellKind::kRnn ? 1 : 3;
  static constexpr int kProductGates = kKind == CellKind::kGru ? 2 : kGates;  // of the first matmul

  TileStep(const RecurrentTask& task, const RecurrentPanels& panels, const TileState<V>& state)
      : task_(task), panels_(panels), state_(state), units_(task.units), blocks_((task.units + V::kLanes - 1) / V::kLanes) {}

  // `inputs` is the first row of the tile; `from` is the index of the states before the step.
  void run(const float* inputs, int from) const {
    each_group<kProductGates>([&](auto count, std::int64_t block) __attribute__((always_inline)) {
      constexpr int kBlocks = decltype(count)::value;
      V sums[kRows][kBlocks][kProductGates];
      unroll<kRows>(UNROLLED(row) {
        unroll<kBlocks>(UNROLLED(b) {
          unroll<kProductGates>(UNROLLED(g) {
            const bool is_candidate = kKind == CellKind::kGruLinear && g.value == 2;
            sums[row.value][b.value][g.value] =
                is_candidate ? bias(panels_.recurrent_bias, block + b.value, g.value)
                             : input(inputs, row.value, block + b.value, g.value) +
                                   bias(panels_.recurrent_bias, block + b.value, g.value);
          });
        });
      });
      add_product(state_.hidden[from], state_.stride, units_,
                  panels_.weights + block * units_ * kProductGates * V::kLanes, sums);
      unroll<kRows>(UNROLLED(row) {
        unroll<kBlocks>(UNROLLED(b) { finish(sums[row.value][b.value], inputs, row.value, block + b.value, from); });
      });
    });
    if constexpr (kKind == CellKind::kGru) {
      each_group<1>([&](auto count, std::int64_t block) __attribute__((always_inline)) {
        constexpr int kBlocks = decltype(count)::value;
        V sums[kRows][kBlocks][1];
        unroll<kRows>(UNROLLED(row) {
          unroll<kBlocks>(UNROLLED(b) {
            sums[row.value][b.value][0] =
                input(inputs, row.value, block + b.value, 2) + bias(panels_.recurrent_bias, block + b.value, 2);
          });
        });
        add_product(state_.reset_hidden, state_.stride, units_, panels_.candidate + block * units_ * V::kLanes, sums);
        unroll<kRows>(UNROLLED(row) {
          unroll<kBlocks>(UNROLLED(b) {
            const std::int64_t place = row.value * state_.stride + (block + b.value) * V::kLanes;
            mix(V::load(state_.update + place), sums[row.value][b.value][0], place, from);
          });
        });
      });
    }
  }

 private:
  // Calls body(Turn<n>(), block) for groups of n consecutive blocks, with enough sums to hide the latency of an FMA.
  template <int kCount, typename F>
  FLOAT_INLINE void each_group(F&& body) const {
    constexpr int kBlocks = kRows > 1 || V::kLanes < 8 ? 1 : 8 / kCount;
    std::int64_t block = 0;
    for (; block + kBlocks <= blocks_; block += kBlocks) body(Turn<kBlocks>(), block);
    for (; block < blocks_; ++block) body(Turn<1>(), block);
  }

  // The input of a gate plus its bias. Lanes after the last unit belong to the next gate or to the slack.
  FLOAT_INLINE V input(const float* inputs, int row, std::int64_t block, int gate) const {
    const float* from = inputs + (row * kGates + gate) * units_ + block * V::kLanes;
    return V::load(from) + bias(panels_.input_bias, block, gate);
  }

  FLOAT_INLINE V bias(const float* panel, std::int64_t block, int gate) const {
    return V::load(panel + (block * kGates + gate) * V::kLanes);
  }

  FLOAT_INLINE V apply_clipped(int index, V sum) const { return apply(task_.functions[index], clip(sum, task_.clip)); }

  FLOAT_INLINE void finish(V (&sums)[kProductGates], const float* inputs, int row, std::int64_t block, int from) const {
    const std::int64_t place = row * state_.stride + block * V::kLanes;
    if constexpr (kKind == CellKind::kLstm) {
      const V before = V::load(state_.cell[from] + place);
      const V enter = apply_clipped(0, add_peephole(sums[0], block, 0, before));
      const V forget = task_.input_forget ? number<V>(1) - enter : apply_clipped(0, add_peephole(sums[2], block, 2, before));
      const V cell = clip(fused(forget, before, enter * apply_clipped(1, sums[3])), task_.cell_clip);
      const V leave = apply_clipped(0, add_peephole(sums[1], block, 1, cell));
      cell.store(state_.cell[1 - from] + place);
      (leave * apply(task_.functions[2], cell)).store(state_.hidden[1 - from] + place);
    } else if constexpr (kKind == CellKind::kRnn) {
      apply_clipped(0, sums[0]).store(state_.hidden[1 - from] + place);
    } else {
      const V update = apply_clipped(0, sums[0]), reset = apply_clipped(0, sums[1]);
      if constexpr (kKind == CellKind::kGruLinear) {
        mix(update, fused(reset, sums[2], input(inputs, row, block, 2)), place, from);
      } else {
        update.store(state_.update + place);
        (reset * V::load(state_.hidden[from] + place)).store(state_.reset_hidden + place);
      }
    }
  }

  FLOAT_INLINE V add_peephole(V sum, std::int64_t block, int gate, V cell) const {
    if (panels_.peepholes == nullptr) return sum;
    return fused(V::load(panels_.peepholes + (block * 3 + gate) * V::kLanes), cell, sum);
  }

  // hidden' = (1 - update) * candidate + update * hidden
  FLOAT_INLINE void mix(V update, V sum, std::int64_t place, int from) const {
    const V candidate = apply_clipped(1, sum);
    const V kept = update * V::load(state_.hidden[from] + place);
    fused(number<V>(1) - update, candidate, kept).store(state_.hidden[1 - from] + place);
  }

  const RecurrentTask& task_;
  const RecurrentPanels& panels_;
  const TileState<V>& state_;
  const std::int64_t units_, blocks_;
};

// All steps of rows row .. row + kRows - 1 of the batch.
template <typename V, CellKind kKind, int kRows>
void run_tile(const RecurrentTask& task, const RecurrentPanels& panels, const RecurrentTensors& tensors, std::int64_t row,
              std::uint8_t* scratch) {
  constexpr bool kHasCell = kKind == CellKind::kLstm;
  const std::int64_t units = task.units, width = gates_of(kKind) * units;
  const std::size_t bytes = static_cast<std::size_t>(units) * sizeof(float);
  const TileState<V> state(scratch, kRows, (units + 15) / 16 * 16);
  for (int k = 0; k < kRows; ++k) {
    const std::int64_t from = (row + k) * units, to = k * state.stride;
    if (tensors.hidden != nullptr) std::memcpy(state.hidden[0] + to, tensors.hidden + from, bytes);
    if (kHasCell && tensors.cell != nullptr) std::memcpy(state.cell[0] + to, tensors.cell + from, bytes);
  }
  const TileStep<V, kKind, kRows> step(task, panels, state);
  int before = 0;
  for (std::int64_t n = 0; n < task.steps; ++n) {
    const std::int64_t time = task.is_reverse ? task.steps - 1 - n : n;
    if (tensors.continues != nullptr) {
      for (int k = 0; k < kRows; ++k) {
        const float factor = tensors.continues[time * task.batch + row + k];
        for (std::int64_t unit = 0; unit < units; ++unit) {
          state.hidden[before][k * state.stride + unit] *= factor;
          if (kHasCell) state.cell[before][k * state.stride + unit] *= factor;
        }
      }
    }
    step.run(tensors.inputs + (time * task.batch + row) * width, before);
    const int after = 1 - before;
    for (int k = 0; k < kRows; ++k) {
      float* y = tensors.y + time * task.y_step + (row + k) * units;
      const std::int64_t place = k * state.stride;
      if (tensors.lengths != nullptr && time >= tensors.lengths[row + k]) {
        std::memcpy(state.hidden[after] + place, state.hidden[before] + place, bytes);
        if (kHasCell) std::memcpy(state.cell[after] + place, state.cell[before] + place, bytes);
        std::memset(y, 0, bytes);
      } else {
        std::memcpy(y, state.hidden[after] + place, bytes);
      }
      if (kHasCell && tensors.cells != nullptr)
        std::memcpy(tensors.cells + time * task.y_step + (row + k) * units, state.cell[after] + place, bytes);
    }
    before = after;
  }
  for (int k = 0; k < kRows; ++k) {
    const std::int64_t to = (row + k) * units, from = k * state.stride;
    std::memcpy(tensors.last_hidden + to, state.hidden[before] + from, bytes);
    if (kHasCell) std::memcpy(tensors.last_cell + to, state.cell[before] + from, bytes);
  }
}

template <typename V, CellKind kKind, int kRows>
void run_rows(const RecurrentTask& task, const RecurrentPanels& panels, const RecurrentTensors& tensors, std::int64_t first,
              std::int64_t last, std::uint8_t* scratch) {
  std::int64_t row = first;
  for (; row + kRows <= last; row += kRows) run_tile<V, kKind, kRows>(task, panels, tensors, row, scratch);
  for (; row < last; ++row) run_tile<V, kKind, 1>(task, panels, tensors, row, scratch);
}

template <typename V, int kRows>
void run_recurrent(const RecurrentTask& task, const RecurrentPanels& panels, const RecurrentTensors& tensors,
                   std::int64_t first, std::int64_t last, std::uint8_t* scratch) {
  switch (task.kind) {
    case CellKind::kLstm: return run_rows<V, CellKind::kLstm, kRows>(task, panels, tensors, first, last, scratch);
    case CellKind::kGru: return run_rows<V, CellKind::kGru, kRows>(task, panels, tensors, first, last, scratch);
    case CellKind::kGruLinear: return run_rows<V, CellKind::kGruLinear, kRows>(task, panels, tensors, first, last, scratch);
    case CellKind::kRnn: return run_rows<V, CellKind::kRnn, kRows>(task, panels, tensors, first, last, scratch);
  }
}

}  // namespace
}  // namespace tpuconvert
