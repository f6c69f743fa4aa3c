// Split of the results of a convolution into register tiles.
#pragma once

#include <cstdint>

namespace tpuconvert::avx512 {

// Tiles of `results` results, each of at most `most` rows. Their heights differ by at most one. With a `line`, of which
// `results` is a multiple, every line is split separately, so that no tile extends over two lines.
class Tiles {
 public:
  Tiles(std::int64_t results, int most, std::int64_t line)
      : line_(line != 0 ? line : results),
        count_(pieces(line_, most)),
        fewer_(static_cast<int>(line_ / count_)),
        higher_(line_ % count_),
        all_(count_ * (results / line_)) {}

  std::int64_t count() const { return all_; }
  int rows_of(std::int64_t tile) const { return fewer_ + (tile % count_ < higher_ ? 1 : 0); }
  // Number of consecutive tiles with the same height, starting with `tile`.
  std::int64_t same_from(std::int64_t tile) const {
    if (higher_ == 0) return all_ - tile;
    const std::int64_t place = tile % count_;
    return (place < higher_ ? higher_ : count_) - place;
  }

  static std::int64_t pieces(std::int64_t line, int most) { return (line + most - 1) / most; }

 private:
  std::int64_t line_;
  std::int64_t count_;  // tiles of a line
  int fewer_;
  std::int64_t higher_;  // number of tiles of a line with fewer_ + 1 rows
  std::int64_t all_;
};

}  // namespace tpuconvert::avx512
