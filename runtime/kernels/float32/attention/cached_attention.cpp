#include "float32/attention/cached_attention.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "core/bind_spec.h"
#include "core/variants.h"

namespace tpuconvert {

namespace {

constexpr std::int64_t kFloat = sizeof(float);

// Multiply-adds of a part, below which another thread costs more than it gains.
constexpr std::int64_t kPartProducts = 1 << 15;

[[noreturn]] void refuse(const std::string& reason) { throw std::invalid_argument("cached_attention_float32: " + reason); }

std::ptrdiff_t in_floats(std::int64_t bytes) {
  if (bytes < 0 || bytes % kFloat != 0) refuse("a stride is not possible");
  return static_cast<std::ptrdiff_t>(bytes / kFloat);
}

// Bytes from the first element of [batch, heads, rows, size] to the end of the last one.
std::size_t bytes_of(const RowStrides& strides, std::int64_t batch, std::int64_t heads, std::int64_t rows,
                     std::int64_t size) {
  const std::int64_t floats = (batch - 1) * strides.batch + (heads - 1) * strides.head + (rows - 1) * strides.row + size;
  return static_cast<std::size_t>(floats * kFloat);
}

class CachedAttentionStep final : public Step {
 public:
  CachedAttentionStep(const CachedAttentionSpec& spec, Isa isa)
      : kernels_(TPU_SELECT(isa, kCachedAttentionScalar, kCachedAttentionAvx2, kCachedAttentionAvx512,
                            kCachedAttentionNeon)),
        spec_(spec) {
    std::int64_t elements = 1;
    for (const std::int64_t extent : {spec.batch, spec.heads, std::max(spec.rows, spec.capacity), std::max(spec.size, spec.value_size)})
      if (extent < 1 || __builtin_mul_overflow(elements, extent, &elements) || elements > INT64_MAX / 64)
        refuse("an extent is not possible");
    if (spec.key_heads < 1 || spec.heads % spec.key_heads != 0) refuse("the query heads cannot share the key heads");
    if (spec.rows < 1 || spec.size < 1 || spec.value_size < 1 || spec.rows > spec.capacity)
      refuse("the caches are too small");
  }

  void run(const Run& run) const override {
    const std::int64_t length = *run.at<const std::int32_t>(spec_.length);
    if (length < 0 || length + spec_.rows > spec_.capacity) throw std::out_of_range("the caches are full");
    append(run, spec_.new_keys, spec_.new_key, spec_.keys, spec_.size, length);
    append(run, spec_.new_values, spec_.new_value, spec_.values, spec_.value_size, length);
    const std::int64_t units = spec_.batch * spec_.heads * spec_.rows;
    const std::int64_t products = units * (length + spec_.rows) * (spec_.size + spec_.value_size);
    const std::int64_t most = std::min({units, products / kPartProducts + 1, std::int64_t{run.threads()} * 4});
    const int parts = run.threads() == 1 ? 1 : static_cast<int>(most);
    const float* mask = spec_.masks ? run.at<const float>(*spec_.masks) : nullptr;
    run.parallel(parts, [&, this](int part, int worker) {
      kernels_.run(spec_, units * part / parts, units * (part + 1) / parts, length, run.at<const float>(spec_.queries),
                   run.at<const float>(spec_.keys), run.at<const float>(spec_.values), mask, run.at<float>(spec_.result),
                   reinterpret_cast<double*>(run.scratch(worker)));
    });
  }

  std::vector<Span> spans() const override {
    const CachedAttentionSpec& s = spec_;
    const std::int64_t rows = s.batch * s.key_heads * s.capacity;
    std::vector<Span> all{
        Span::reads(s.queries, bytes_of(s.query, s.batch, s.heads, s.rows, s.size), kFloat),
        Span::reads(s.new_keys, bytes_of(s.new_key, s.batch, s.key_heads, s.rows, s.size), kFloat),
        Span::reads(s.new_values, bytes_of(s.new_value, s.batch, s.key_heads, s.rows, s.value_size), kFloat),
        Span::reads(s.length, sizeof(std::int32_t), sizeof(std::int32_t)),
        Span::writes(s.keys, static_cast<std::size_t>(rows * s.size * kFloat), kFloat),
        Span::writes(s.values, static_cast<std::size_t>(rows * s.value_size * kFloat), kFloat),
        Span::writes(s.result, bytes_of(s.output, s.batch, s.heads, s.rows, s.value_size), kFloat)};
    if (s.masks) all.push_back(Span::reads(*s.masks, bytes_of(s.mask, s.batch, s.heads, s.rows, s.capacity), kFloat));
    return all;
  }
  std::size_t scratch_bytes() const override {
    return static_cast<std::size_t>(cached_attention_scratch(spec_)) * sizeof(double);
  }
  const char* kind() const override { return "cached_attention_float32"; }

 private:
  // Copies the new rows behind the valid rows of a cache.
  void append(const Run& run, const Place& source, const RowStrides& strides, const Place& cache, std::int64_t size,
              std::int64_t length) const {
    const float* from = run.at<const float>(source);
    float* to = run.at<float>(cache);
    for (std::int64_t batch = 0; batch < spec_.batch; ++batch)
      for (std::int64_t head = 0; head < spec_.key_heads; ++head)
        for (std::int64_t row = 0; row < spec_.rows; ++row)
          std::memcpy(to + ((batch * spec_.key_heads + head) * spec_.capacity + length + row) * size,
                      from + batch * strides.batch + head * strides.head + row * strides.row,
                      static_cast<std::size_t>(size * kFloat));
  }

  const CachedAttentionKernels& kernels_;
  CachedAttentionSpec spec_;
};

using Strides = std::vector<std::int64_t>;  // of batch, head and row, in bytes

RowStrides row_strides(const Strides& bytes) {
  if (bytes.size() != 3) refuse("a tensor needs three strides");
  return {in_floats(bytes[0]), in_floats(bytes[1]), in_floats(bytes[2])};
}

void bind(nanobind::module_& module) {
  using Spec = CachedAttentionSpec;
  SpecClass<Spec>(module, "CachedAttentionSpec")
      .required("queries", &Spec::queries)
      .required("new_keys", &Spec::new_keys)
      .required("new_values", &Spec::new_values)
      .required("keys", &Spec::keys)
      .required("values", &Spec::values)
      .required("length", &Spec::length)
      .required("result", &Spec::result)
      .field_as<Place>("masks", [](Spec* spec, const Place& place) {
        spec->masks = place;
        spec->has_mask = true;
      })
      .required("batch", &Spec::batch)
      .required("heads", &Spec::heads)
      .required("key_heads", &Spec::key_heads)
      .required("rows", &Spec::rows)
      .required("size", &Spec::size)
      .required("value_size", &Spec::value_size)
      .required("capacity", &Spec::capacity)
      .required("scale", &Spec::scale)
      .required("is_causal", &Spec::is_causal)
      .required("is_precise", &Spec::is_precise)
      .required_as<Strides>("query_strides", [](Spec* spec, const Strides& s) { spec->query = row_strides(s); })
      .required_as<Strides>("key_strides", [](Spec* spec, const Strides& s) { spec->new_key = row_strides(s); })
      .required_as<Strides>("value_strides", [](Spec* spec, const Strides& s) { spec->new_value = row_strides(s); })
      .required_as<Strides>("result_strides", [](Spec* spec, const Strides& s) { spec->output = row_strides(s); })
      .field_as<Strides>("mask_strides", [](Spec* spec, const Strides& s) { spec->mask = row_strides(s); });
  bind_kernel<Spec>(module, "cached_attention_float32", kVectorWidths, make_cached_attention);
}

const Binding binding(bind);

}  // namespace

std::shared_ptr<Step> make_cached_attention(const CachedAttentionSpec& spec, Isa isa) {
  return std::make_shared<CachedAttentionStep>(spec, isa);
}

}  // namespace tpuconvert
