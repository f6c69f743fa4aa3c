// The tile kernel for AMX. Only for files compiled for it.
#pragma once

#include "int8/tile/tile_results.h"

namespace tpuconvert::avx512 {
namespace {

// The intrinsics of GCC 12 do not declare the memory that they access.
template <int Tile>
TPU_INLINE void zero_tile() {
  asm volatile("tilezero %%tmm%c0" : : "i"(Tile));
}

// Loads rows of chunk bytes, or a chunk of weights.
template <int Tile>
TPU_INLINE void load_tile(const void* from, std::ptrdiff_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(Tile) : "memory");
}

template <int Tile>
TPU_INLINE void store_tile(void* to, std::ptrdiff_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(Tile) : "memory");
}

// sums += dot products of four unsigned bytes of `inputs` and four signed bytes of `weights`, in 32 bits.
template <int Sums, int Inputs, int Weights>
TPU_INLINE void multiply_tiles() {
  asm volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(Sums), "i"(Inputs), "i"(Weights));
}

// Tile registers: 0..3 contain sums, 4 inputs, 5..7 weights.
constexpr int kInputTile = 4, kWeightTile = 5, kWeightTiles = 3;

// Multiplies all segments and calls `meanwhile` after the products of each chunk, which run asynchronously.
template <int Accumulators, typename Body>
TPU_INLINE void multiply_segments(const TileArguments& arguments, Body&& meanwhile) {
  constexpr std::ptrdiff_t kStepBytes = 64 * Accumulators;
  unrolled<Accumulators>([&](auto i) TPU_INLINED { load_tile<decltype(i)::value>(arguments.parameters[i].bias, 0); });
  const std::int8_t* weights = arguments.weights;
  const std::uint8_t* const* inputs = arguments.inputs;
  const std::uint32_t* skips = arguments.skips;
  const std::size_t chunk = arguments.chunk_bytes;
  const std::ptrdiff_t weight_bytes = static_cast<std::ptrdiff_t>(chunk / 4) * kStepBytes;
  for (std::size_t segment = arguments.segments; segment != 0; --segment) {
    const std::uint8_t* at = inputs[0] + arguments.input_offset;
    const std::uint8_t* const end = at + arguments.segment_bytes;
    const std::ptrdiff_t stride = arguments.rows == 1 ? 0 : inputs[1] - inputs[0];
    inputs += arguments.rows;
    for (; at != end; at += chunk) {
      load_tile<kInputTile>(at, stride);
      unrolled<Accumulators>([&](auto i) TPU_INLINED {
        constexpr int kTile = kWeightTile + decltype(i)::value % kWeightTiles;
        load_tile<kTile>(weights + 64 * i, kStepBytes);
        multiply_tiles<decltype(i)::value, kInputTile, kTile>();
      });
      for (std::ptrdiff_t line = arguments.ahead; line < arguments.ahead_end; line += 64)
        _mm_prefetch(weights + line, _MM_HINT_T1);
      weights += weight_bytes;
      meanwhile();
    }
    weights += static_cast<std::ptrdiff_t>(*skips++) * kStepBytes;
  }
}

// The epilogue of a tile, in groups of rows.
template <int Accumulators, TileEpilogue Epilogue, bool Residual>
class Finisher {
 public:
  TPU_INLINE Finisher(const TileArguments& arguments, const std::int32_t* sums, int rows)
      : arguments_(arguments), constants_(arguments), sums_(sums), rows_(rows) {}

  TPU_INLINE void finish_groups(int groups) {
    for (; groups > 0 && rows_ >= kRows; --groups) finish_rows<kRows>();
  }

  TPU_INLINE void finish_all() {
    while (rows_ >= kRows) finish_rows<kRows>();
    while (rows_ > 0) finish_rows<1>();
  }

 private:
  static constexpr int kRows = Accumulators > 2 ? 2 : 4;  // rows of a group

  template <int Rows>
  TPU_INLINE void finish_rows() {
    __m512i sums[Rows][Accumulators];
    unrolled<Rows>([&](auto row) TPU_INLINED {
      unrolled<Accumulators>([&](auto i) TPU_INLINED {
        sums[row][i] = _mm512_load_si512(sums_ + (row * Accumulators + i) * kLanes);
      });
    });
    store_results<Rows, Accumulators, Epilogue, Residual>(arguments_, constants_, sums);
    sums_ += Rows * Accumulators * kLanes;
    rows_ -= Rows;
    arguments_.outputs += Rows;
    arguments_.residual.others += Rows;
    arguments_.sums += Rows * Accumulators * kLanes;
  }

  TileArguments arguments_;
  ResultConstants<Accumulators> constants_;
  const std::int32_t* sums_;
  int rows_;
};

template <int Accumulators, TileEpilogue Epilogue, bool Residual>
__attribute__((noinline)) void finish_pending(PendingTile& pending) {
  Finisher<Accumulators, Epilogue, Residual> finisher(pending.arguments, pending.sums[pending.half], pending.arguments.rows);
  finisher.finish_all();
  pending.finish = nullptr;
}

// Keeps a tile whose sums are in the other half.
TPU_INLINE void keep_pending(const TileArguments& arguments, bool has_residual, void (*finish)(PendingTile&)) {
  PendingTile& pending = *arguments.pending;
  pending.arguments = arguments;
  for (int row = 0; row < kAmxRows; row += 8)
    _mm512_store_si512(pending.outputs + row, _mm512_loadu_si512(arguments.outputs + row));
  pending.arguments.outputs = pending.outputs;
  if (has_residual) {
    for (int row = 0; row < kAmxRows; row += 8)
      _mm512_store_si512(pending.others + row, _mm512_loadu_si512(arguments.residual.others + row));
    pending.arguments.residual.others = pending.others;
  }
  pending.finish = finish;
  pending.half = 1 - pending.half;
}

template <int Accumulators, TileEpilogue Epilogue, bool Residual>
__attribute__((noinline)) void amx_tile(const TileArguments& arguments) {
  using Finish = Finisher<Accumulators, Epilogue, Residual>;
  const auto store_sums = [](std::int32_t* sums) TPU_INLINED {
    unrolled<Accumulators>([&](auto i) TPU_INLINED {
      store_tile<decltype(i)::value>(sums + kLanes * i, 64 * Accumulators);
    });
  };
  PendingTile* const pending = arguments.pending;
  if (pending == nullptr) {
    alignas(64) std::int32_t sums[kAmxRows * Accumulators * kLanes];
    multiply_segments<Accumulators>(arguments, []() TPU_INLINED {});
    store_sums(sums);
    Finish(arguments, sums, arguments.rows).finish_all();
    return;
  }
  constexpr auto kFinish = finish_pending<Accumulators, Epilogue, Residual>;
  if (pending->finish != kFinish) finish_amx(*pending);
  const bool is_first = pending->finish == nullptr;
  Finish before(is_first ? arguments : pending->arguments, pending->sums[pending->half], is_first ? 0 : pending->arguments.rows);
  const int groups = arguments.finished_per_chunk;
  multiply_segments<Accumulators>(arguments, [&]() TPU_INLINED { before.finish_groups(groups); });
  before.finish_all();
  store_sums(pending->sums[1 - pending->half]);
  keep_pending(arguments, Residual, kFinish);
}

template <TileEpilogue Epilogue, bool Residual>
TileKernel amx_tile_of(int accumulators) {
  switch (accumulators) {
    case 1: return amx_tile<1, Epilogue, Residual>;
    case 2: return amx_tile<2, Epilogue, Residual>;
    case 3: return amx_tile<3, Epilogue, Residual>;
    case 4: return amx_tile<4, Epilogue, Residual>;
    default: return nullptr;
  }
}

}  // namespace
}  // namespace tpuconvert::avx512
