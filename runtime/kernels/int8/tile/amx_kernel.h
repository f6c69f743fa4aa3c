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

template <int Accumulators>
TPU_INLINE void multiply_segments(const TileArguments& arguments) {
  constexpr std::ptrdiff_t kStepBytes = 64 * Accumulators;
  unrolled<Accumulators>([&](auto i) TPU_INLINED { zero_tile<decltype(i)::value>(); });
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
      if (Accumulators == 4 && arguments.ahead != 0)
        for (std::ptrdiff_t line = 0; line < weight_bytes; line += kStepBytes)
          _mm_prefetch(weights + arguments.ahead + line, _MM_HINT_T1);
      weights += weight_bytes;
    }
    weights += static_cast<std::ptrdiff_t>(*skips++) * kStepBytes;
  }
}

// Adds the biases to `Rows` rows of sums, and applies the epilogue.
template <int Rows, int Accumulators, TileEpilogue Epilogue, bool Residual>
TPU_INLINE void finish_rows(const TileArguments& arguments, const std::int32_t* from) {
  __m512i sums[Rows][Accumulators];
  unrolled<Rows>([&](auto row) TPU_INLINED {
    unrolled<Accumulators>([&](auto i) TPU_INLINED {
      sums[row][i] = _mm512_add_epi32(_mm512_load_si512(from + (row * Accumulators + i) * kLanes),
                                      _mm512_load_si512(arguments.parameters[i].bias));
    });
  });
  store_results<Rows, Accumulators, Epilogue, Residual>(arguments, sums);
}

template <int Accumulators, TileEpilogue Epilogue, bool Residual>
__attribute__((noinline)) void amx_tile(const TileArguments& given) {
  alignas(64) std::int32_t sums[kAmxRows * Accumulators * kLanes];
  multiply_segments<Accumulators>(given);
  unrolled<Accumulators>([&](auto i) TPU_INLINED {
    store_tile<decltype(i)::value>(sums + kLanes * i, 64 * Accumulators);
  });
  constexpr int kRows = Accumulators > 2 ? 2 : 4;  // rows that are finished together
  TileArguments arguments = given;
  const std::int32_t* from = sums;
  const auto go_on = [&](int rows) {
    from += rows * Accumulators * kLanes;
    arguments.outputs += rows;
    arguments.residual.others += rows;
    arguments.sums += rows * Accumulators * kLanes;
  };
  int rows = given.rows;
  for (; rows >= kRows; rows -= kRows, go_on(kRows))
    finish_rows<kRows, Accumulators, Epilogue, Residual>(arguments, from);
  for (; rows > 0; --rows, go_on(1)) finish_rows<1, Accumulators, Epilogue, Residual>(arguments, from);
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
