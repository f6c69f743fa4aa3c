// Float32 epilogues of register tiles, with a proof per channel.
#pragma once

#include <cstdint>

#include "int8/tile/tile.h"
#include "int8/epilogue/epilogue.h"

namespace tpuconvert::avx512 {

// The cheapest TileEpilogue that equals the epilogue for every |sum| <= `largest`, or kSums if there is none.
// Coefficients are set for it and for every more expensive TileEpilogue.
struct RequantCandidates {
  TileEpilogue cheapest = TileEpilogue::kSums;
  float factor = 0.0f;        // kOneFactor, kWords
  float addend = 0.0f;
  KinkedFloatRequant kinked;     // kTwoFactors and kKinked
};

RequantCandidates find_requant(const Epilogue& epilogue, int channel, std::int64_t largest);

}  // namespace tpuconvert::avx512
