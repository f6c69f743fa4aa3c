// Requantization of rows of sums for AVX512-VNNI.
#if defined(__x86_64__)

#include <type_traits>

#include "int8/tile/tile_kernel.h"
#include "int8/winograd/finish.h"

namespace tpuconvert::avx512 {
namespace {

struct NoResidual {
  TPU_INLINE explicit NoResidual(const TileResidual&) {}
};

template <TileEpilogue Epilogue, int Accumulators, bool Residual>
void finish(const TileArguments& arguments, int rows) {
  const __m512i doubled_offset = _mm512_set1_epi16(static_cast<short>(2 * arguments.offset + 1));
  const Limits limits{_mm512_set1_epi8(static_cast<char>(arguments.low)),
                      _mm512_set1_epi8(static_cast<char>(arguments.high))};
  const std::conditional_t<Residual, ResidualRegisters, NoResidual> residual(arguments.residual);
  constexpr int k1 = Accumulators > 1 ? 1 : 0, k2 = Accumulators > 2 ? 2 : k1, k3 = Accumulators - 1;
  for (int row = 0; row < rows; ++row) {
    __m512i sums[Accumulators];
    unrolled<Accumulators>([&](auto i) TPU_INLINED {
      const __m512i sum = _mm512_load_si512(arguments.sums + (row * Accumulators + i) * kLanes);
      sums[i] = requantize<Epilogue>(sum, arguments.parameters[i]);
    });
    if constexpr (Epilogue == TileEpilogue::kWords) {
      store_words<Accumulators>(arguments, arguments.outputs[row], sums);
    } else {
      __m512i bytes = packed<Accumulators, Epilogue>(sums[0], sums[k1], sums[k2], sums[k3], doubled_offset);
      bytes = clamp(bytes, limits);
      if (arguments.lut != nullptr) bytes = look_up(arguments.lut, bytes);
      if constexpr (Residual) {
        const std::uint8_t* other = arguments.residual.others[row] + arguments.output_offset;
        bytes = residual.add(bytes, _mm512_maskz_loadu_epi8(arguments.mask, other));
      }
      _mm512_mask_storeu_epi8(arguments.outputs[row] + arguments.output_offset, arguments.mask, bytes);
    }
  }
}

template <TileEpilogue Epilogue, bool Residual>
FinishKernel finish_of(int accumulators) {
  switch (accumulators) {
    case 1: return finish<Epilogue, 1, Residual>;
    case 2: return finish<Epilogue, 2, Residual>;
    case 3: return finish<Epilogue, 3, Residual>;
    default: return finish<Epilogue, 4, Residual>;
  }
}

}  // namespace

FinishKernel finish_kernel(TileEpilogue epilogue, int accumulators, bool adds_residual) {
  switch (epilogue) {
    case TileEpilogue::kSubnormal:
      return adds_residual ? finish_of<TileEpilogue::kSubnormal, true>(accumulators)
                           : finish_of<TileEpilogue::kSubnormal, false>(accumulators);
    case TileEpilogue::kOneFactor:
      return adds_residual ? finish_of<TileEpilogue::kOneFactor, true>(accumulators)
                           : finish_of<TileEpilogue::kOneFactor, false>(accumulators);
    case TileEpilogue::kTwoFactors: return adds_residual ? nullptr : finish_of<TileEpilogue::kTwoFactors, false>(accumulators);
    case TileEpilogue::kKinked: return adds_residual ? nullptr : finish_of<TileEpilogue::kKinked, false>(accumulators);
    case TileEpilogue::kWords: return adds_residual ? nullptr : finish_of<TileEpilogue::kWords, false>(accumulators);
    case TileEpilogue::kSums: break;
  }
  return nullptr;
}

}  // namespace tpuconvert::avx512

#endif
