// Interface between the baseline part of the Winograd convolution and its kernels per instruction set.
//
// Contains only plain data and plain functions: code compiled for an instruction set must not share inline functions
// with the baseline. winograd.h describes the arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tpuconvert::winograd {

constexpr int kTile = 4;                      // results per side of a tile
constexpr int kPatch = 6;                     // input pixels per side of the patch of a tile
constexpr int kPositions = kPatch * kPatch;   // elements of a transformed patch
constexpr int kResults = kTile * kTile;
constexpr int kChannelBlock = 32;             // the channels of a transformed patch are padded to a multiple of this
constexpr std::int32_t kInverseOf9 = 954437177;   // modulo 2^32

// Transforms the patch of one tile: v[position * stride + channel] = (B^T d B)[position], |v| <= 255 * 68 = 17340.
struct InputTask {
  const std::uint8_t* const* pixels;  // [kPositions]
  int channels;
  std::int16_t* v;                    // channels after the last one, up to a multiple of kChannelBlock, are undefined
  std::ptrdiff_t stride;
};

// m[tile * m_pitch + column] = sum over channels of v[tile * v_pitch + channel] * u[channel][column], modulo 2^32.
struct ProductTask {
  const std::int16_t* v;
  std::ptrdiff_t v_pitch;
  const std::int16_t* u;  // [pair of channels][column][2] if `is_paired`, else [channel][column]
  std::ptrdiff_t ahead;   // elements from `u` to the weights that are prefetched; 0 for none
  int pairs;
  std::int32_t* m;
  std::ptrdiff_t m_pitch;
  int tiles;
  int vectors;            // registers of columns
};

// sums[result * columns + column] = y + bias modulo 2^32, where y is the exact sum of the convolution, |y| < 2^25.
struct OutputTask {
  const std::int32_t* m;
  std::ptrdiff_t stride;     // from one position to the next
  const std::int32_t* bias;  // [column]
  std::int32_t* sums;        // 64-byte aligned
  int vectors;
};

struct Functions {
  int lanes;        // columns of a register
  int vectors;      // maximum number of registers of a panel
  bool is_paired;   // order of the weights, see ProductTask
  int rows;         // tiles that a call of `multiply` computes together for the widest panel
  void (*transform_input)(const InputTask& task);
  void (*multiply)(const ProductTask& task);
  void (*transform_output)(const OutputTask& task);
};

const Functions& functions_scalar();
const Functions& functions_avx2();
const Functions& functions_avxvnni_vex();
const Functions& functions_avxvnni_evex();
const Functions& functions_avx512vnni();
const Functions& functions_neon();

}  // namespace tpuconvert::winograd
