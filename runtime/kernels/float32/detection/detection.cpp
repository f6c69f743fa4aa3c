#include "float32/detection/detection.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "core/extents.h"

namespace tpuconvert {

namespace {

constexpr std::int64_t kColumns = 7;

struct Box {
  float low[2], high[2];
};

// A box kept by non-maximum suppression, with the values of its result row.
struct Found {
  float score;
  int label;
  Box box;
};

// NaN if an operand is NaN, as np.maximum and np.minimum.
float larger(float a, float b) { return a > b || a != a ? a : b; }
float smaller(float a, float b) { return a < b || a != a ? a : b; }

float area_of(const Box& box) {
  const float width = box.high[0] - box.low[0], height = box.high[1] - box.low[1];
  return width < 0 || height < 0 ? 0.0f : width * height;
}

// Intersection over union, with every operation in float32; 0 for disjoint boxes.
float overlap(const Box& a, float a_area, const Box& b, float b_area) {
  const float width = smaller(a.high[0], b.high[0]) - larger(a.low[0], b.low[0]);
  const float height = smaller(a.high[1], b.high[1]) - larger(a.low[1], b.low[1]);
  if (!(width > 0 && height > 0)) return 0.0f;
  const float common = width * height;
  return common / (a_area + b_area - common);
}

class DetectionStep final : public Step {
 public:
  explicit DetectionStep(const DetectionSpec& spec) : spec_(spec) {
    const int code = static_cast<int>(spec.code);
    if (spec.images < 1 || spec.priors < 1 || spec.classes < 1 || spec.most_per_image == 0 || code < 1 || code > 3 ||
        !(spec.most_overlap >= 0) || !(spec.eta > 0 && spec.eta <= 1))
      throw std::invalid_argument("detection_output: parameters that make no sense");
    per_class_ = spec.most_per_class < 0 ? spec.priors : std::min(spec.priors, spec.most_per_class);
    const bool has_background = spec.background >= 0 && spec.background < spec.classes;
    const std::int64_t wanted = spec.classes - (has_background ? 1 : 0);
    most_found_ = product_of({per_class_, wanted});
    if (most_found_ > std::numeric_limits<std::int32_t>::max())
      throw std::invalid_argument("detection_output: more boxes than an index can count");
    rows_ = spec.most_per_image > 0 ? spec.most_per_image : most_found_;
    const std::int64_t images = spec.images, priors = spec.priors, item = sizeof(float);
    loc_bytes_ = bytes({images, priors, spec.shares_location ? 1 : spec.classes, 4, item});
    conf_bytes_ = bytes({images, priors, spec.classes, item});
    prior_bytes_ = bytes({spec.has_variances ? 2 : 1, priors, 4, item});
    output_bytes_ = bytes({images, rows_, kColumns, item});
    order_bytes_ = padded(bytes({std::max<std::int64_t>(priors, most_found_), std::int64_t{sizeof(int)}}));
    score_bytes_ = padded(bytes({priors, item}));
    kept_bytes_ = padded(bytes({per_class_, std::int64_t{sizeof(Box) + sizeof(float)}}));
    found_bytes_ = padded(bytes({most_found_, std::int64_t{sizeof(Found)}}));
  }

  void run(const Run& run) const override {
    const float* loc = run.at<const float>(spec_.loc);
    const float* conf = run.at<const float>(spec_.conf);
    const float* prior = run.at<const float>(spec_.prior);
    float* to = run.at<float>(spec_.output);
    std::uint8_t* const scratch = run.scratch(0);
    auto* order = reinterpret_cast<int*>(scratch);
    auto* scores = reinterpret_cast<float*>(scratch + order_bytes_);
    auto* kept = reinterpret_cast<Box*>(scratch + order_bytes_ + score_bytes_);
    auto* found = reinterpret_cast<Found*>(scratch + order_bytes_ + score_bytes_ + kept_bytes_);
    std::memset(to, 0, output_bytes_);
    const std::int64_t locations = std::int64_t{spec_.priors} * 4 * (spec_.shares_location ? 1 : spec_.classes);
    for (int image = 0; image < spec_.images; ++image) {
      std::int64_t count = 0;
      for (int label = 0; label < spec_.classes; ++label)
        if (label != spec_.background) {
          for (int index = 0; index < spec_.priors; ++index)
            scores[index] = conf[std::int64_t{index} * spec_.classes + label];
          count += of_class(loc, scores, prior, label, order, kept, found + count);
        }
      count = best(found, count, order);
      for (std::int64_t k = 0; k < count; ++k, to += kColumns) {
        const Found& one = found[order[k]];
        to[0] = static_cast<float>(image);
        to[1] = static_cast<float>(one.label);
        to[2] = one.score;
        std::memcpy(to + 3, &one.box, sizeof(Box));
      }
      loc += locations;
      conf += std::int64_t{spec_.priors} * spec_.classes;
    }
  }

  std::vector<Span> spans() const override {
    return {Span::reads(spec_.loc, loc_bytes_, sizeof(float)), Span::reads(spec_.conf, conf_bytes_, sizeof(float)),
            Span::reads(spec_.prior, prior_bytes_, sizeof(float)),
            Span::writes(spec_.output, output_bytes_, sizeof(float))};
  }
  std::size_t scratch_bytes() const override { return order_bytes_ + score_bytes_ + kept_bytes_ + found_bytes_; }
  const char* kind() const override { return "detection_output"; }

 private:
  static std::size_t bytes(std::initializer_list<std::int64_t> factors) {
    return static_cast<std::size_t>(product_of(factors));
  }
  static std::size_t padded(std::size_t size) { return (size + 63) / 64 * 64; }

  // Computed in float64 and rounded once.
  Box decoded(const float* loc, const float* prior, int index, int label) const {
    const float* delta = loc + (spec_.shares_location ? index : std::int64_t{index} * spec_.classes + label) * 4;
    const float* corners = prior + std::int64_t{index} * 4;
    const float* variances = spec_.has_variances ? corners + std::int64_t{spec_.priors} * 4 : nullptr;
    const auto moved = [&](int k) {
      return static_cast<double>(delta[k]) * (variances == nullptr ? 1.0 : static_cast<double>(variances[k]));
    };
    Box box;
    for (int axis = 0; axis < 2; ++axis) {
      const double low = static_cast<double>(corners[axis]), high = static_cast<double>(corners[axis + 2]);
      const double size = high - low;
      double first = low + moved(axis), last = high + moved(axis + 2);
      if (spec_.code == BoxCode::kCornerSize) {
        first = low + moved(axis) * size;
        last = high + moved(axis + 2) * size;
      } else if (spec_.code == BoxCode::kCenterSize) {
        const double center = (low + high) / 2 + moved(axis) * size;
        const double half = std::exp(moved(axis + 2)) * size / 2;
        first = center - half;
        last = center + half;
      }
      box.low[axis] = static_cast<float>(first);
      box.high[axis] = static_cast<float>(last);
    }
    return box;
  }

  // Non-maximum suppression for one class. The kept boxes are in descending order of their scores; boxes with equal
  // scores keep the order of the priors.
  std::int64_t of_class(const float* loc, const float* scores, const float* prior, int label, int* order, Box* kept,
                        Found* found) const {
    int candidates = 0;
    for (int index = 0; index < spec_.priors; ++index)
      if (scores[index] > spec_.least_score) order[candidates++] = index;
    const int tried = std::min(candidates, per_class_);
    std::partial_sort(order, order + tried, order + candidates, [&](int a, int b) {
      return scores[a] > scores[b] || (scores[a] == scores[b] && a < b);
    });
    auto* areas = reinterpret_cast<float*>(kept + per_class_);
    float threshold = spec_.most_overlap;
    int count = 0;
    for (int k = 0; k < tried; ++k) {
      const Box box = decoded(loc, prior, order[k], label);
      const float area = area_of(box);
      bool stays = true;
      for (int other = 0; stays && other < count; ++other)
        stays = !(overlap(box, area, kept[other], areas[other]) > threshold);
      if (!stays) continue;
      kept[count] = box;
      areas[count] = area;
      found[count++] = {scores[order[k]], label, box};
      if (spec_.eta < 1 && threshold > 0.5f) threshold *= spec_.eta;
    }
    return count;
  }

  // Selects the boxes of an image with the best scores, preferring earlier ones for equal scores. The selected boxes
  // stay in the order of the classes.
  std::int64_t best(const Found* found, std::int64_t count, int* order) const {
    for (std::int64_t k = 0; k < count; ++k) order[k] = static_cast<int>(k);
    if (count <= rows_) return count;
    std::partial_sort(order, order + rows_, order + count, [&](int a, int b) {
      return found[a].score > found[b].score || (found[a].score == found[b].score && a < b);
    });
    std::sort(order, order + rows_);
    return rows_;
  }

  DetectionSpec spec_;
  int per_class_ = 0;
  std::int64_t most_found_ = 0, rows_ = 0;
  std::size_t loc_bytes_ = 0, conf_bytes_ = 0, prior_bytes_ = 0, output_bytes_ = 0;
  std::size_t order_bytes_ = 0, score_bytes_ = 0, kept_bytes_ = 0, found_bytes_ = 0;
};

}  // namespace

std::shared_ptr<Step> make_detection_float(const DetectionSpec& spec) { return std::make_shared<DetectionStep>(spec); }

}  // namespace tpuconvert
