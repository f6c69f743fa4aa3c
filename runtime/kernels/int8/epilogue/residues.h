// Residues of evenly spaced numbers, sixteen sequences at once.
//
// Included by files compiled for AVX512 as well as by baseline ones, so it holds plain data only.
#pragma once

#include <cstdint>

namespace tpuconvert::avx512 {

constexpr int kSequences = 16;

// From `first` on, each residue is the one before less `step`, plus `modulus` where that is negative. All of them are
// 0..modulus-1, and so is the step.
struct alignas(64) Residues {
  std::int32_t modulus[kSequences], step[kSequences], first[kSequences];
};

// The least and the largest of `count` residues of each sequence; the largest possible one and 0 of none.
void find_extremes(const Residues& residues, int count, std::int32_t* least, std::int32_t* largest);

// Index of the first residue below `below` or at least `from` in each sequence; -1 if there is none within `count`.
void find_first(const Residues& residues, int count, const std::int32_t* below, const std::int32_t* from,
                std::int32_t* index);

}  // namespace tpuconvert::avx512
