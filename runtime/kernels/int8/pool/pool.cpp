#include "int8/pool/pool.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "core/extents.h"
#include "int8/pool/average.h"
#include "int8/elementwise/element_kernels.h"

namespace tpuconvert {

namespace {

constexpr int kMostExtent = 1 << 24;

// Intersection of a window with the image along one axis.
struct Inside {
  int first, end;
};

Inside inside(int window, int kernel, int stride, int pad, int extent) {
  const std::int64_t start = std::int64_t{window} * stride - pad;
  const std::int64_t end = std::max<std::int64_t>(std::min<std::int64_t>(start + kernel, extent), 0);
  return {static_cast<int>(std::min(std::max<std::int64_t>(start, 0), end)), static_cast<int>(end)};
}

// Largest magnitude, or 0 without numbers.
std::int64_t largest(const std::vector<std::int32_t>& counts) {
  std::int64_t most = 0;
  for (const std::int64_t count : counts) most = std::max(most, count < 0 ? -count : count);
  return most;
}

class PoolStep final : public Step {
 public:
  PoolStep(const PoolSpec& spec, Isa isa) : kernels_(element_kernels(isa)), spec_(spec) {
    for (const int extent : {spec.images, spec.height, spec.width, spec.channels, spec.out_height, spec.out_width,
                             spec.kernel_h, spec.kernel_w, spec.stride_h, spec.stride_w})
      if (extent < 1 || extent > kMostExtent) throw std::invalid_argument("pool: an extent is below 1 or too large");
    if (spec.pad_top < 0 || spec.pad_left < 0 || spec.pad_top > kMostExtent || spec.pad_left > kMostExtent)
      throw std::invalid_argument("pool: a padding is below 0 or too large");
    product_of({spec.images, spec.height, spec.width, spec.channels});
    product_of({spec.images, spec.out_height, spec.out_width, spec.channels});
    if (product_of({spec.images, spec.out_height}) > std::numeric_limits<std::int32_t>::max())
      throw std::invalid_argument("pool: too many rows");
    const std::int64_t window = std::int64_t{std::min(spec.kernel_h, spec.height)} * std::min(spec.kernel_w, spec.width);
    if (!spec.is_maximum && window > std::numeric_limits<std::int32_t>::max() / 512)
      throw std::invalid_argument("pool: the sum of a window may leave 32 bits");
    if (!spec.is_maximum && spec.average.divides &&
        (spec.row_counts.size() != static_cast<std::size_t>(spec.out_height) ||
         spec.column_counts.size() != static_cast<std::size_t>(spec.out_width)))
      throw std::invalid_argument("pool: one count per row and column is needed");
    if (largest(spec.row_counts) * largest(spec.column_counts) > std::numeric_limits<std::int32_t>::max())
      throw std::invalid_argument("pool: a window counts too many elements");
    if (spec.is_wide && !spec.is_maximum) throw std::invalid_argument("pool: averages of INT16 have no kernel");
    check_average(spec.average);
  }

  void run(const Run& run) const override {
    const std::uint8_t* from = run.at<const std::uint8_t>(spec_.source);
    std::uint8_t* to = run.at<std::uint8_t>(spec_.target);
    const int rows = spec_.images * spec_.out_height;
    const int parts = run.threads() == 1 ? 1 : std::min(rows, 4 * run.threads());
    run.parallel(parts, [&](int part, int worker) {
      const auto first = static_cast<int>(std::int64_t{rows} * part / parts);
      const auto last = static_cast<int>(std::int64_t{rows} * (part + 1) / parts);
      for (int row = first; row < last; ++row) {
        const std::uint8_t* image = from + row / spec_.out_height * spec_.height * row_bytes();
        std::uint8_t* target = to + row * out_row_bytes();
        if (spec_.is_wide)
          maxima(reinterpret_cast<const std::int16_t*>(image), row % spec_.out_height,
                 reinterpret_cast<std::int16_t*>(target), reinterpret_cast<std::int16_t*>(run.scratch(worker)),
                 kernels_.maximum_i16);
        else if (spec_.is_maximum)
          maxima(image, row % spec_.out_height, target, run.scratch(worker), kernels_.maximum_u8);
        else
          averages(image, row % spec_.out_height, target, run.scratch(worker));
      }
    });
  }

  std::vector<Span> spans() const override {
    const std::size_t item = spec_.is_wide ? 2 : 1;
    return {Span::reads(spec_.source, static_cast<std::size_t>(spec_.images * spec_.height * row_bytes()), item),
            Span::writes(spec_.target, static_cast<std::size_t>(spec_.images * spec_.out_height * out_row_bytes()), item)};
  }
  std::size_t scratch_bytes() const override {
    const auto row = static_cast<std::size_t>(row_bytes());
    return spec_.is_maximum ? row : 4 * row + 4 * static_cast<std::size_t>(spec_.channels);
  }
  const char* kind() const override { return spec_.is_maximum ? "max_pool" : "average_pool"; }

 private:
  std::int64_t row_elements() const { return std::int64_t{spec_.width} * spec_.channels; }
  std::int64_t out_row_elements() const { return std::int64_t{spec_.out_width} * spec_.channels; }
  std::int64_t row_bytes() const { return row_elements() * (spec_.is_wide ? 2 : 1); }
  std::int64_t out_row_bytes() const { return out_row_elements() * (spec_.is_wide ? 2 : 1); }

  // Maximum over the rows of the windows, which are long contiguous runs, then over their columns. The maximum of no
  // elements is the lowest number, for a window outside of the image.
  template <typename T>
  void maxima(const T* image, int out_row, T* to, T* line,
              void (*maximum)(const T* a, const T* b, T* to, std::int64_t count)) const {
    const Inside rows = inside(out_row, spec_.kernel_h, spec_.stride_h, spec_.pad_top, spec_.height);
    if (rows.first >= rows.end) {
      std::fill_n(to, out_row_elements(), std::numeric_limits<T>::lowest());
      return;
    }
    const T* column = image + rows.first * row_elements();
    if (rows.end - rows.first > 1) {
      maximum(column, column + row_elements(), line, row_elements());
      for (int row = rows.first + 2; row < rows.end; ++row)
        maximum(line, image + row * row_elements(), line, row_elements());
      column = line;
    }
    const std::int64_t channels = spec_.channels;
    int window = 0;
    while (window < spec_.out_width) {
      const int run = spec_.stride_w == 1 ? whole_windows_from(window) : 1;
      const Inside columns = inside(window, spec_.kernel_w, spec_.stride_w, spec_.pad_left, spec_.width);
      T* target = to + window * channels;
      if (columns.first >= columns.end) {
        std::fill_n(target, channels, std::numeric_limits<T>::lowest());
      } else {
        const T* first = column + columns.first * channels;
        if (columns.end - columns.first == 1) {
          // A plan may place the result over the image, which gives wrong results but no undefined behavior.
          std::memmove(target, first, sizeof(T) * static_cast<std::size_t>(run * channels));
        } else {
          maximum(first, first + channels, target, run * channels);
          for (int next = 2; next < columns.end - columns.first; ++next)
            maximum(target, first + next * channels, target, run * channels);
        }
      }
      window += run;
    }
  }

  // Number of consecutive windows, starting with `window`, that are inside the image; at least 1.
  int whole_windows_from(int window) const {
    if (window < spec_.pad_left) return 1;
    const int last = std::min(spec_.out_width - 1, spec_.width - spec_.kernel_w + spec_.pad_left);
    return std::max(1, last - window + 1);
  }

  void averages(const std::uint8_t* image, int out_row, std::uint8_t* to, std::uint8_t* scratch) const {
    auto* line = reinterpret_cast<std::int32_t*>(scratch);
    std::int32_t* sums = line + row_bytes();
    const std::int64_t channels = spec_.channels;
    const Inside rows = inside(out_row, spec_.kernel_h, spec_.stride_h, spec_.pad_top, spec_.height);
    std::memset(line, 0, static_cast<std::size_t>(row_bytes()) * 4);
    for (int row = rows.first; row < rows.end; ++row)
      kernels_.accumulate_u8(image + row * row_bytes(), line, row_bytes());
    for (int window = 0; window < spec_.out_width; ++window) {
      const Inside columns = inside(window, spec_.kernel_w, spec_.stride_w, spec_.pad_left, spec_.width);
      std::memset(sums, 0, static_cast<std::size_t>(channels) * 4);
      for (int column = columns.first; column < columns.end; ++column)
        kernels_.accumulate(line + column * channels, sums, channels);
      const std::int32_t elements = std::max(rows.end - rows.first, 0) * std::max(columns.end - columns.first, 0);
      const std::int32_t count = spec_.average.divides ? spec_.row_counts[static_cast<std::size_t>(out_row)] *
                                                             spec_.column_counts[static_cast<std::size_t>(window)]
                                                       : 1;
      store_averages(kernels_, spec_.average, sums, elements, count, to + window * channels, channels);
    }
  }

  const ElementKernels& kernels_;
  PoolSpec spec_;
};

}  // namespace

std::shared_ptr<Step> make_pool(const PoolSpec& spec, Isa isa) { return std::make_shared<PoolStep>(spec, isa); }

}  // namespace tpuconvert
