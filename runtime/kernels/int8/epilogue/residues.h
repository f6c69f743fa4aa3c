// Residues of arithmetic sequences modulo an integer, for sixteen sequences at once.
//
// Included by files compiled for AVX512 as well as by baseline ones, so it contains plain data only.
#pragma once

#include <cstdint>

namespace tpuconvert::avx512 {

constexpr int kSequences = 16;

// Residue i of a sequence is (first - i * step) mod modulus. `first` and `step` are in 0..modulus-1.
struct alignas(64) Residues {
  std::int32_t modulus[kSequences], step[kSequences], first[kSequences];
};

// Smallest and largest of `count` residues of each sequence; modulus - 1 and 0 if `count` is 0.
void find_extremes(const Residues& residues, int count, std::int32_t* least, std::int32_t* largest);

// Index of the first residue that is below `below` or at least `from`, for each sequence; -1 if none of the first
// `count` is.
void find_first(const Residues& residues, int count, const std::int32_t* below, const std::int32_t* from,
                std::int32_t* index);

}  // namespace tpuconvert::avx512
