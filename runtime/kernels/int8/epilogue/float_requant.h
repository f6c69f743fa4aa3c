// Epilogues that register tiles may compute in float32, with a proof per channel.
#pragma once

#include <cstdint>

#include "int8/tile/tile.h"
#include "int8/epilogue/epilogue.h"

namespace tpuconvert::avx512 {

// The cheapest TileEpilogue that equals the epilogue for every |sum| <= `largest`, and coefficients for it and for every
// more expensive one; kSums if there is none.
struct RequantCandidates {
  TileEpilogue cheapest = TileEpilogue::kSums;
  float factor = 0.0f;        // of kOneFactor
  float addend = 0.0f;
  KinkedFloatRequant kinked;     // of kTwoFactors and kKinked
};

RequantCandidates find_requant(const Epilogue& epilogue, int channel, std::int64_t largest);

}  // namespace tpuconvert::avx512
