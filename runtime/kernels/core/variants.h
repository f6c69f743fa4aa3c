// Selection among the implementations of a kernel.
#pragma once

#include <vector>

#include "core/isa.h"

// Selects the implementation for an instruction set. The arguments for other processor architectures need not be
// declared.
#if defined(__x86_64__)
#define TPU_SELECT(isa, scalar, avx2, avx512, neon) \
  (has_avx512(isa) ? (avx512) : (isa) != Isa::kScalar ? (avx2) : (scalar))
#elif defined(__aarch64__)
#define TPU_SELECT(isa, scalar, avx2, avx512, neon) ((isa) != Isa::kScalar ? (neon) : (scalar))
#else
#define TPU_SELECT(isa, scalar, avx2, avx512, neon) (static_cast<void>(isa), (scalar))
#endif

namespace tpuconvert {

// The instruction sets for which a kernel has an implementation, in ascending order per processor architecture. For any
// other instruction set the next lower variant runs.
struct Variants {
  std::vector<Isa> x86_64, aarch64;

  const std::vector<Isa>& of_this_machine() const {
#if defined(__aarch64__)
    return aarch64;
#else
    return x86_64;
#endif
  }
};

// Kernels with one implementation, kernels that use TPU_SELECT, and kernels that also have a variant for byte dot
// products. Kernels that multiply 16-bit words, bytes of different signs, and blocks of convolutions have fewer variants.
inline const Variants kScalarOnly{{Isa::kScalar}, {Isa::kScalar}};
inline const Variants kVectorWidths{{Isa::kScalar, Isa::kAvx2, Isa::kAvx512Vnni}, {Isa::kScalar, Isa::kNeon}};
inline const Variants kAllIsas{{Isa::kScalar, Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512Vnni},
                               {Isa::kScalar, Isa::kNeon, Isa::kDotprod, Isa::kI8mm}};
inline const Variants kWords{{Isa::kScalar, Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512Vnni}, {Isa::kScalar, Isa::kNeon}};
inline const Variants kWordProducts{{Isa::kScalar, Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512Vnni, Isa::kAmx},
                                   {Isa::kScalar, Isa::kNeon}};
inline const Variants kUnsignedDots{{Isa::kScalar, Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512Vnni},
                                    {Isa::kScalar, Isa::kNeon, Isa::kI8mm}};
inline const Variants kBlockIsas{{Isa::kScalar, Isa::kAvx512Vnni, Isa::kAmx}, {Isa::kScalar}};
// Kernels with register tiles: those of kAllIsas, and AMX. A build without AMX never selects it.
inline const Variants kTileIsas{{Isa::kScalar, Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512Vnni, Isa::kAmx},
                                {Isa::kScalar, Isa::kNeon, Isa::kDotprod, Isa::kI8mm}};

}  // namespace tpuconvert
