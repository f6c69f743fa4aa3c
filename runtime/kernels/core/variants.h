// Selection among the implementations of a kernel.
#pragma once

#include <vector>

#include "core/isa.h"

// Selects the implementation for an instruction set. The arguments for other processor architectures need not be
// declared.
#if defined(__x86_64__)
#define TPU_SELECT(isa, scalar, avx2, avx512, neon) \
  ((isa) == Isa::kAvx512Vnni ? (avx512) : (isa) != Isa::kScalar ? (avx2) : (scalar))
#elif defined(__aarch64__)
#define TPU_SELECT(isa, scalar, avx2, avx512, neon) ((isa) != Isa::kScalar ? (neon) : (scalar))
#else
#define TPU_SELECT(isa, scalar, avx2, avx512, neon) (static_cast<void>(isa), (scalar))
#endif

namespace tpuconvert {

// The instruction sets of kernels with one implementation, of kernels that use TPU_SELECT, and of kernels that also
// have a variant for byte dot products. Winograd convolutions and blocks of several convolutions have fewer.
inline const std::vector<Isa> kScalarOnly{Isa::kScalar};
#if defined(__aarch64__)
inline const std::vector<Isa> kVectorWidths{Isa::kScalar, Isa::kNeon};
inline const std::vector<Isa> kWinogradIsas{Isa::kScalar};
inline const std::vector<Isa> kBlockIsas{Isa::kScalar};
inline const std::vector<Isa> kAllIsas{Isa::kScalar, Isa::kNeon, Isa::kDotprod, Isa::kI8mm};
#else
inline const std::vector<Isa> kVectorWidths{Isa::kScalar, Isa::kAvx2, Isa::kAvx512Vnni};
inline const std::vector<Isa> kAllIsas{Isa::kScalar, Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512Vnni};
inline const std::vector<Isa> kWinogradIsas = kAllIsas;
inline const std::vector<Isa> kBlockIsas{Isa::kScalar, Isa::kAvx512Vnni};
#endif

}  // namespace tpuconvert
