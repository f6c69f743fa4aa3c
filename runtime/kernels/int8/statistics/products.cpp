#include "int8/statistics/products.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/variants.h"

namespace tpuconvert {

namespace {

constexpr std::int64_t kBlock = 512;  // observations that are packed at once: a panel of either factor is in the L1 cache
constexpr std::uint32_t kFlip = 0x80808080u;

const ProductKernels& kernels_for(Isa isa) { return TPU_SELECT(isa, kProductsScalar, kProductsAvx2, kProductsAvx512Vnni, kProductsScalar); }

// Packs `width` inputs from `first` on, of which those from `inputs` on are zero, for the observations `start` to
// `end - 1`. `flip` is added to the bytes of words without carry.
class Packing {
 public:
  Packing(const Observations& rows, const std::uint8_t* x, bool has_bytes) : rows_(rows), x_(x), has_bytes_(has_bytes) {}

  std::int64_t words(std::int64_t start, std::int64_t end) const {
    const std::int64_t each = has_bytes_ ? 4 : 2;
    return (end - start + each - 1) / each;
  }

  void pack(std::int64_t first, int width, std::int64_t start, std::int64_t end, std::uint32_t flip,
            std::uint32_t* to) const {
    const std::int64_t count = words(start, end);
    for (int lane = 0; lane < width; ++lane) {
      const std::int64_t input = first + lane;
      if (input >= rows_.inputs) {
        for (std::int64_t word = 0; word < count; ++word) to[word * width + lane] = 0;
      } else if (has_bytes_) {
        pack_bytes(x_ + input * rows_.input_stride + start * rows_.stride, end - start, width, flip, to + lane);
      } else {
        pack_shorts(x_ + input * rows_.input_stride + start * rows_.stride, end - start, width, to + lane);
      }
    }
  }

 private:
  void pack_bytes(const std::uint8_t* x, std::int64_t n, int width, std::uint32_t flip, std::uint32_t* to) const {
    const std::int64_t stride = rows_.stride;
    std::int64_t i = 0;
    if (stride == 1) {
      for (; i + 4 <= n; i += 4, to += width) {
        std::uint32_t word;
        std::memcpy(&word, x + i, 4);
        *to = word ^ flip;
      }
    } else {
      for (; i + 4 <= n; i += 4, to += width) {
        const std::uint8_t* from = x + i * stride;
        *to = (from[0] | from[stride] << 8 | from[2 * stride] << 16 |
               static_cast<std::uint32_t>(from[3 * stride]) << 24) ^ flip;
      }
    }
    if (i == n) return;
    // Both factors of the missing observations must have the value 0 where it cancels: the unsigned factor of unsigned
    // bytes, the signed factor of signed bytes. Both are unflipped bytes 0.
    std::uint32_t word = 0;
    for (int part = 0; i < n; ++i, ++part)
      word |= static_cast<std::uint32_t>(x[i * stride] ^ (flip & 0xff)) << (8 * part);
    *to = word;
  }

  void pack_shorts(const std::uint8_t* x, std::int64_t n, int width, std::uint32_t* to) const {
    for (std::int64_t i = 0; i < n; i += 2, to += width) {
      const std::uint32_t low = wide(x[i * rows_.stride]);
      const std::uint32_t high = i + 1 < n ? wide(x[(i + 1) * rows_.stride]) : 0;
      *to = (low & 0xffff) | high << 16;
    }
  }

  std::uint32_t wide(std::uint8_t byte) const {
    return rows_.is_signed ? static_cast<std::uint32_t>(static_cast<std::int8_t>(byte)) : byte;
  }

  const Observations& rows_;
  const std::uint8_t* x_;
  bool has_bytes_;
};

std::int64_t up(std::int64_t value, std::int64_t step) { return (value + step - 1) / step * step; }

// Products of one group: those of panels from the diagonal on, then the others by symmetry.
class Group {
 public:
  Group(const Observations& rows, std::int64_t group, std::int32_t* products, std::int64_t* totals,
        const ProductKernels& kernels)
      : rows_(rows),
        x_(rows.x + group * rows.group_stride),
        products_(products + group * rows.inputs * rows.inputs),
        totals_(totals + group * rows.inputs),
        kernels_(kernels),
        is_narrow_(rows.inputs <= kernels.narrow),
        columns_(is_narrow_ ? kernels.narrow : kernels.columns),
        packing_(rows, x_, kernels.has_bytes),
        left_(up(rows.inputs, kernels.rows) * kBlock / 2),
        right_(up(rows.inputs, columns_) * kBlock / 2) {}

  std::int64_t panels() const { return (rows_.inputs + columns_ - 1) / columns_; }

  // `each(count, work)` calls work(0..count-1).
  template <typename Each>
  void run(const Each& each) {
    std::memset(products_, 0, sizeof(std::int32_t) * rows_.inputs * rows_.inputs);
    const std::uint32_t left_flip = kernels_.has_bytes && !rows_.is_signed ? kFlip : 0;
    const std::uint32_t right_flip = kernels_.has_bytes && rows_.is_signed ? kFlip : 0;
    for (std::int64_t start = 0; start < rows_.count; start += kBlock) {
      const std::int64_t end = std::min(rows_.count, start + kBlock);
      const std::int64_t words = packing_.words(start, end);
      each(panels(), [&](std::int64_t panel) {
        packing_.pack(panel * columns_, columns_, start, end, right_flip, &right_[panel * columns_ * words]);
      });
      each((rows_.inputs + kernels_.rows - 1) / kernels_.rows, [&](std::int64_t panel) {
        packing_.pack(panel * kernels_.rows, kernels_.rows, start, end, left_flip,
                      &left_[panel * kernels_.rows * words]);
      });
      each(panels(), [&](std::int64_t panel) { add(panel * columns_, words); });
    }
    sum();
    each(panels(), [&](std::int64_t panel) { correct(panel * columns_); });
    mirror();
  }

 private:
  void add(std::int64_t column, std::int64_t words) {
    const auto kernel = is_narrow_ ? kernels_.add_narrow : kernels_.add;
    const std::int64_t inputs = rows_.inputs;
    const std::uint32_t* right = &right_[column * words];
    const std::int64_t width = std::min<std::int64_t>(columns_, inputs - column);
    std::int32_t tile[kMostRows * kMostColumns];
    for (std::int64_t row = 0; row < column + width; row += kernels_.rows) {
      const std::uint32_t* left = &left_[row * words];
      std::int32_t* to = products_ + row * inputs + column;
      if (row + kernels_.rows <= inputs && width == columns_) {
        kernel(left, right, words, to, inputs);
        continue;
      }
      std::fill(tile, tile + kernels_.rows * columns_, 0);
      kernel(left, right, words, tile, columns_);
      const std::int64_t height = std::min<std::int64_t>(kernels_.rows, inputs - row);
      for (std::int64_t i = 0; i < height; ++i)
        for (std::int64_t j = 0; j < width; ++j) to[i * inputs + j] += tile[i * columns_ + j];
    }
  }

  void sum() {
    for (std::int64_t input = 0; input < rows_.inputs; ++input) {
      const std::uint8_t* x = x_ + input * rows_.input_stride;
      std::int64_t total = 0;
      for (std::int64_t i = 0; i < rows_.count; ++i) total += x[i * rows_.stride];
      if (rows_.is_signed)
        for (std::int64_t i = 0; i < rows_.count; ++i) total -= x[i * rows_.stride] & 0x80 ? 256 : 0;
      totals_[input] = total;
    }
  }

  // One factor of bytes has another offset than the values: unsigned u (s + 128), signed s (u - 128). Sums may exceed 32
  // bits in between; the results do not.
  void correct(std::int64_t column) {
    if (!kernels_.has_bytes) return;
    const std::int64_t end = std::min(column + columns_, rows_.inputs);
    for (std::int64_t row = 0; row < end; ++row)
      for (std::int64_t j = std::max(row, column); j < end; ++j) {
        const std::int64_t total = rows_.is_signed ? -totals_[row] : totals_[j];
        std::int32_t& product = products_[row * rows_.inputs + j];
        product = static_cast<std::int32_t>(static_cast<std::uint32_t>(product) + static_cast<std::uint32_t>(128 * total));
      }
  }

  void mirror() {
    constexpr std::int64_t kTile = 16;  // a cache line
    for (std::int64_t i = 0; i < rows_.inputs; i += kTile)
      for (std::int64_t j = 0; j <= i; j += kTile)
        for (std::int64_t row = i; row < std::min(i + kTile, rows_.inputs); ++row)
          for (std::int64_t column = j; column < std::min(j + kTile, row); ++column)
            products_[row * rows_.inputs + column] = products_[column * rows_.inputs + row];
  }

  static constexpr int kMostRows = 8, kMostColumns = 48;

  const Observations& rows_;
  const std::uint8_t* x_;
  std::int32_t* products_;
  std::int64_t* totals_;
  const ProductKernels& kernels_;
  bool is_narrow_;
  std::int64_t columns_;
  Packing packing_;
  std::vector<std::uint32_t> left_, right_;
};

}  // namespace

void multiply_inputs(const Observations& rows, std::int32_t* products, std::int64_t* totals, Isa isa, ThreadPool& pool) {
  const ProductKernels& kernels = kernels_for(isa);
  if (rows.groups == 1) {
    Group(rows, 0, products, totals, kernels).run([&](std::int64_t count, const auto& work) {
      pool.run(static_cast<int>(count), [&](int part, int) { work(part); });
    });
    return;
  }
  // A part is as many groups as keep the number of parts small.
  const std::int64_t step = (rows.groups + 255) / 256, parts = (rows.groups + step - 1) / step;
  pool.run(static_cast<int>(parts), [&](int part, int) {
    const std::int64_t end = std::min(rows.groups, (part + 1) * step);
    for (std::int64_t group = part * step; group < end; ++group)
      Group(rows, group, products, totals, kernels).run([](std::int64_t count, const auto& work) {
        for (std::int64_t i = 0; i < count; ++i) work(i);
      });
  });
}

}  // namespace tpuconvert
