// Which epilogues the register tiles may compute in binary32, with a proof for each channel.
#pragma once

#include <cstdint>

#include "int8/tile/tile.h"
#include "int8/epilogue/epilogue.h"

namespace tpuconvert::avx512 {

// The cheapest form of TileEpilogue that gives exactly what the epilogue gives for every 32-bit sum of magnitude at most
// `largest`, and coefficients for it and for every dearer one; kSums where there is none.
struct RequantCandidates {
  TileEpilogue cheapest = TileEpilogue::kSums;
  float factor = 0.0f;        // of kOneFactor
  float addend = 0.0f;
  KinkedFloatRequant kinked;     // of kTwoFactors and kKinked
};

RequantCandidates find_requant(const Epilogue& epilogue, int channel, std::int64_t largest);

}  // namespace tpuconvert::avx512
