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

// Tile registers. One block of rows: 0..3 contain the sums of up to four accumulators, 4 the inputs, 5..7 weights. Two
// blocks: two accumulators at a time, so that four products need four loads: 0..3 contain the sums [block][accumulator],
// 4 and 5 the inputs of a block, 6 and 7 weights.
constexpr int kInputTile = 4;
constexpr int first_weight_tile(int blocks) { return kInputTile + blocks; }
constexpr int kSumTiles = 4, kTiles = 8;

// Multiplies accumulators First..First+Count-1 of all segments and stores their sums, [row][accumulator][lane].
template <int Blocks, int Accumulators, int First, int Count>
TPU_INLINE void multiply_pass(const TileArguments& arguments, std::int32_t* sums) {
  constexpr std::ptrdiff_t kStepBytes = 64 * Accumulators;
  constexpr int kBlockSums = kSumTiles / Blocks, kWeights = first_weight_tile(Blocks);
  unrolled<Blocks>([&](auto block) TPU_INLINED {
    unrolled<Count>([&](auto i) TPU_INLINED {
      constexpr int kSum = decltype(block)::value * kBlockSums + decltype(i)::value;
      load_tile<kSum>(arguments.parameters[First + i].bias, 0);
    });
  });
  const std::int8_t* weights = arguments.weights + 64 * First;
  const std::uint8_t* const* inputs[2] = {arguments.inputs, arguments.second_inputs};
  const int rows[2] = {arguments.first_rows, arguments.rows - arguments.first_rows};
  const std::uint32_t* skips = arguments.skips;
  // Two passes prefetch one half each.
  constexpr bool kIsHalf = Count < Accumulators;
  const std::ptrdiff_t middle = arguments.ahead + (arguments.ahead_end - arguments.ahead) / 128 * 64;
  const std::ptrdiff_t ahead = (First == 0 ? arguments.ahead : middle) - 64 * First;
  const std::ptrdiff_t ahead_end = (kIsHalf && First == 0 ? middle : arguments.ahead_end) - 64 * First;
  const std::size_t chunk = arguments.chunk_bytes;
  const std::ptrdiff_t weight_bytes = static_cast<std::ptrdiff_t>(chunk / 4) * kStepBytes;
  for (std::size_t segment = arguments.segments; segment != 0; --segment) {
    const std::uint8_t* at[Blocks];
    std::ptrdiff_t stride[Blocks];
    unrolled<Blocks>([&](auto block) TPU_INLINED {
      at[block] = inputs[block][0] + arguments.input_offset;
      stride[block] = rows[block] == 1 ? 0 : inputs[block][1] - inputs[block][0];
      inputs[block] += rows[block];
    });
    const std::uint8_t* const end = at[0] + arguments.segment_bytes;
    for (; at[0] != end; weights += weight_bytes) {
      unrolled<Blocks>([&](auto block) TPU_INLINED {
        constexpr int kBlock = decltype(block)::value;
        load_tile<kInputTile + kBlock>(at[block], stride[block]);
        at[block] += chunk;
        unrolled<Count>([&](auto i) TPU_INLINED {
          constexpr int kIndex = decltype(i)::value, kWeight = kWeights + kIndex % (kTiles - kWeights);
          if constexpr (kBlock == 0) load_tile<kWeight>(weights + 64 * i, kStepBytes);
          multiply_tiles<kBlock * kBlockSums + kIndex, kInputTile + kBlock, kWeight>();
        });
      });
      for (std::ptrdiff_t line = ahead; line < ahead_end; line += 64) _mm_prefetch(weights + line, _MM_HINT_T1);
    }
    weights += static_cast<std::ptrdiff_t>(*skips++) * kStepBytes;
  }
  unrolled<Blocks>([&](auto block) TPU_INLINED {
    constexpr int kBlock = decltype(block)::value;
    std::int32_t* const to = kBlock == 0 ? sums : sums + arguments.first_rows * Accumulators * kLanes;
    unrolled<Count>([&](auto i) TPU_INLINED {
      store_tile<kBlock * kBlockSums + decltype(i)::value>(to + kLanes * (First + i), kStepBytes);
    });
  });
}

// The epilogue of a tile, in groups of rows.
template <int Accumulators, TileEpilogue Epilogue, bool Residual>
class Finisher {
 public:
  TPU_INLINE Finisher(const TileArguments& arguments, const std::int32_t* sums)
      : arguments_(arguments), constants_(arguments), sums_(sums) {}

  TPU_INLINE void finish(int rows) {
    constexpr int kRows = Accumulators > 2 ? 2 : 4;
    for (; rows >= kRows; rows -= kRows) finish_rows<kRows>();
    for (; rows > 0; --rows) finish_rows<1>();
  }

 private:
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
    arguments_.outputs += Rows;
    if constexpr (Residual) arguments_.residual.others += Rows;
    arguments_.sums += Rows * Accumulators * kLanes;
  }

  TileArguments arguments_;
  ResultConstants<Accumulators> constants_;
  const std::int32_t* sums_;
};

template <int Blocks, int Accumulators, TileEpilogue Epilogue, bool Residual>
__attribute__((noinline)) void amx_tile(const TileArguments& arguments) {
  alignas(64) std::int32_t sums[Blocks * kAmxRows * Accumulators * kLanes];
  constexpr int kPass = kSumTiles / Blocks;
  multiply_pass<Blocks, Accumulators, 0, (Accumulators < kPass ? Accumulators : kPass)>(arguments, sums);
  if constexpr (Accumulators > kPass) multiply_pass<Blocks, Accumulators, kPass, Accumulators - kPass>(arguments, sums);
  Finisher<Accumulators, Epilogue, Residual>(arguments, sums).finish(arguments.rows);
}

template <TileEpilogue Epilogue, bool Residual>
TileKernel amx_tile_of(int accumulators, bool has_two_blocks) {
  switch (accumulators) {
    case 1: return has_two_blocks ? amx_tile<2, 1, Epilogue, Residual> : amx_tile<1, 1, Epilogue, Residual>;
    case 2: return has_two_blocks ? amx_tile<2, 2, Epilogue, Residual> : amx_tile<1, 2, Epilogue, Residual>;
    case 3: return has_two_blocks ? amx_tile<2, 3, Epilogue, Residual> : amx_tile<1, 3, Epilogue, Residual>;
    case 4: return has_two_blocks ? amx_tile<2, 4, Epilogue, Residual> : amx_tile<1, 4, Epilogue, Residual>;
    default: return nullptr;
  }
}

}  // namespace
}  // namespace tpuconvert::avx512
