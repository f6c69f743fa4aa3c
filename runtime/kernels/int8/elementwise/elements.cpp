#include "int8/elementwise/elements.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <utility>

#include "core/extents.h"
#include "int8/elementwise/element_instructions.h"
#include "int8/elementwise/element_kernels.h"

namespace tpuconvert {

namespace {

constexpr std::int64_t kElementsPerPart = 1 << 13;
constexpr std::int64_t kLongBlock = 1 << 13;
constexpr std::size_t kMostOperands = 16, kMostAxes = 16;
constexpr std::size_t kLaneBytes = (kBlock + kLaneGroup) * 4;

// Strides of a tensor in a step: along outer axes, rows, and elements of a row.
struct Walk {
  std::vector<std::int64_t> outer;
  std::int64_t row = 0, element = 0;
};

class ElementStep final : public Step {
 public:
  ElementStep(const ElementSpec& spec, Isa isa)
      : kernels_(element_kernels(isa)), operands_(spec.operands), result_(spec.result), low_(spec.low),
        high_(spec.high), bias_(spec.bias), store_table_(spec.table) {
    check(spec);
    find_walk(spec);
    instructions_ = prepare_instructions(spec, channels_);
    find_residual(spec);
    lay_out_parameters();
  }

  void run(const Run& run) const override {
    if (blocks_ == 0) return;
    const std::int64_t useful = std::max<std::int64_t>(1, elements_ / kElementsPerPart);
    const std::int64_t parts =
        run.threads() == 1 ? 1 : std::min({blocks_, useful, static_cast<std::int64_t>(2 * run.threads())});
    run.parallel(static_cast<int>(parts), [&](int part, int worker) {
      Worker(*this, run, run.scratch(worker)).work(blocks_ * part / parts, blocks_ * (part + 1) / parts);
    });
  }

  std::vector<Span> spans() const override { return spans_; }

  // Lanes of every instruction, then one staging area for each operand and one for the result.
  std::size_t scratch_bytes() const override {
    return kLaneBytes * (instructions_.size() + operands_.size() + 1);
  }

  std::size_t packed_bytes() const override {
    std::size_t total = 0;
    for (const Instruction& instruction : instructions_)
      for (const auto& values : instruction.parameters) total += values.size() * sizeof(std::int32_t);
    return total;
  }

  const char* kind() const override { return is_residual_ ? "residual" : "elements"; }

 private:
  // Axis that determines the channel of an element.
  enum class ChannelFrom { kNothing, kElement, kRow, kOuter };

  // Iterator of one thread over its blocks.
  class Worker {
   public:
    Worker(const ElementStep& step, const Run& run, std::uint8_t* scratch)
        : step_(step), run_(run), lanes_(scratch), staging_(scratch + kLaneBytes * step.instructions_.size()),
          outer_count_(step.outer_.size()) {}

    void work(std::int64_t first, std::int64_t last) {
      go_to(first);
      for (std::int64_t block = first; block < last; ++block) {
        measure();
        if (step_.is_residual_) {
          residual();
        } else {
          for (std::size_t index = 0; index < step_.instructions_.size(); ++index) execute(index);
          store([this](std::uint8_t* target) { store_lanes(target); });
        }
        advance();
      }
    }

   private:
    // Moves to a block. Blocks are numbered along the elements of a row first, then along rows, then along the outer
    // axes.
    void go_to(std::int64_t block) {
      first_element_ = block % step_.chunks_ * step_.block_;
      block /= step_.chunks_;
      first_row_ = block % step_.row_blocks_ * step_.rows_per_block_;
      block /= step_.row_blocks_;
      for (std::size_t axis = outer_count_; axis-- > 0;) {
        outer_index_[axis] = block % step_.outer_[axis];
        block /= step_.outer_[axis];
      }
    }

    void advance() {
      first_element_ += step_.block_;
      if (step_.chunks_ > 1 && first_element_ < step_.row_length_) return;
      first_element_ = 0;
      first_row_ += step_.rows_per_block_;
      if (first_row_ < step_.rows_) return;
      first_row_ = 0;
      for (std::size_t axis = outer_count_; axis-- > 0;) {
        if (++outer_index_[axis] < step_.outer_[axis]) return;
        outer_index_[axis] = 0;
      }
    }

    void measure() {
      row_count_ = static_cast<int>(std::min(step_.rows_per_block_, step_.rows_ - first_row_));
      element_count_ = static_cast<int>(std::min(step_.block_, step_.row_length_ - first_element_));
      count_ = row_count_ * element_count_;
      channel_ = step_.channel_from_ == ChannelFrom::kElement ? first_element_
                 : step_.channel_from_ == ChannelFrom::kRow   ? first_row_
                 : step_.channel_from_ == ChannelFrom::kOuter ? outer_index_[step_.channel_outer_]
                                                              : 0;
    }

    std::int64_t offset(const Walk& walk) const {
      std::int64_t total = first_row_ * walk.row + first_element_ * walk.element;
      for (std::size_t axis = 0; axis < outer_count_; ++axis) total += outer_index_[axis] * walk.outer[axis];
      return total;
    }

    std::int32_t* lanes(std::size_t index) const {
      return reinterpret_cast<std::int32_t*>(lanes_ + kLaneBytes * index);
    }

    // Address of the elements of an operand, contiguous: in the operand, or copied to its staging area.
    const std::uint8_t* elements(int operand) {
      const ElementTensor& tensor = step_.operands_[static_cast<std::size_t>(operand)];
      const Walk& walk = step_.walks_[static_cast<std::size_t>(operand)];
      const int size = bytes_of(tensor.type);
      const std::uint8_t* from = run_.at<const std::uint8_t>(tensor.place) + offset(walk);
      const bool is_row = walk.element == size;
      if (is_row && (row_count_ == 1 || walk.row == size * step_.row_length_)) return from;
      std::uint8_t* to = staging_ + kLaneBytes * static_cast<std::size_t>(operand);
      // A broadcast operand is copied once, and again if the last block is shorter or a row is split differently.
      const bool repeats = walk.row == 0;
      const std::uint8_t*& staged = staged_[static_cast<std::size_t>(operand)];
      if (repeats && staged == from && staged_count_ == count_) return to;
      staged = nullptr;
      for (int row = 0; row < row_count_; ++row) {
        const std::uint8_t* source = from + row * walk.row;
        std::uint8_t* target = to + static_cast<std::ptrdiff_t>(row) * element_count_ * size;
        if (is_row)
          std::memcpy(target, source, static_cast<std::size_t>(element_count_) * static_cast<std::size_t>(size));
        else
          fill(target, source, size);
      }
      if (repeats) {
        staged = from;
        if (staged_count_ != count_) {
          std::fill(std::begin(staged_), std::end(staged_), nullptr);
          staged_[static_cast<std::size_t>(operand)] = from;
          staged_count_ = count_;
        }
      }
      return to;
    }

    void fill(std::uint8_t* target, const std::uint8_t* source, int size) const {
      if (size == 1) {
        std::memset(target, *source, static_cast<std::size_t>(element_count_));
      } else if (size == 2) {
        std::fill_n(reinterpret_cast<std::uint16_t*>(target), element_count_,
                    *reinterpret_cast<const std::uint16_t*>(source));
      } else {
        std::fill_n(reinterpret_cast<std::uint32_t*>(target), element_count_,
                    *reinterpret_cast<const std::uint32_t*>(source));
      }
    }

    Lanes block_of(std::size_t index) const {
      const Instruction& instruction = step_.instructions_[index];
      Lanes block;
      block.out = lanes(index);
      block.count = count_;
      block.low = instruction.low;
      block.high = instruction.high;
      block.table = instruction.table.data();
      block.is_per_lane = instruction.is_per_channel && step_.channel_from_ == ChannelFrom::kElement;
      block.has_second = instruction.has_second;
      block.has_again = instruction.has_again;
      block.is_wide = instruction.is_wide;
      for (std::size_t p = 0; p < instruction.parameters.size(); ++p)
        block.parameters[p] = instruction.parameters[p].data() + (instruction.is_per_channel ? channel_ : 0);
      if (instruction.kind == Kind::kLanes) {
        block.a = lanes(static_cast<std::size_t>(instruction.a));
        block.b = instruction.b < 0 ? block.a : lanes(static_cast<std::size_t>(instruction.b));
      }
      return block;
    }

    void execute(std::size_t index) {
      const Instruction& instruction = step_.instructions_[index];
      const Lanes block = block_of(index);
      switch (instruction.kind) {
        case Kind::kLoad:
          load(instruction, block.out);
          break;
        case Kind::kLinear:
          step_.kernels_.linear(elements(instruction.a), block);
          break;
        case Kind::kLinearSum: {
          const std::uint8_t* a = elements(instruction.a);
          step_.kernels_.linear_sum(a, elements(instruction.b), block);
          break;
        }
        case Kind::kTable:
          step_.kernels_.look_up_wide(elements(instruction.a), *instruction.wide_table, block.out, count_);
          break;
        case Kind::kLanes:
          step_.kernels_.operations[instruction.code](block);
          break;
        case Kind::kSlow:
          slow(instruction, lanes(static_cast<std::size_t>(instruction.a)), block.out);
          break;
      }
    }

    // Computes linear_sum, rescale and store_u8 in one pass.
    void residual() {
      const Instruction& sum = step_.instructions_[0];
      const std::uint8_t* a = elements(sum.a);
      const std::uint8_t* b = elements(sum.b);
      store([&](std::uint8_t* target) {
        if (step_.has_float_)
          step_.kernels_.residual_float(a, b, block_of(0), step_.float_rescale_, target, count_);
        else
          step_.kernels_.residual(a, b, block_of(0), block_of(1), {step_.low_, step_.high_, step_.bias_}, target,
                                  count_);
        if (!step_.store_table_.empty()) step_.kernels_.look_up(target, target, count_, step_.store_table_.data());
      });
    }

    void load(const Instruction& instruction, std::int32_t* out) {
      const std::uint8_t* from = elements(instruction.a);
      switch (step_.operands_[static_cast<std::size_t>(instruction.a)].type) {
        case ElementType::kU8:
          return step_.kernels_.load_u8(from, instruction.low, out, count_);
        case ElementType::kU16:
          return step_.kernels_.load_u16(reinterpret_cast<const std::uint16_t*>(from), instruction.low, out, count_);
        case ElementType::kI16:
          return step_.kernels_.load_i16(reinterpret_cast<const std::int16_t*>(from), instruction.low, out, count_);
        case ElementType::k32:
          std::memcpy(out, from, static_cast<std::size_t>(count_) * 4);
      }
    }

    void slow(const Instruction& instruction, const std::int32_t* a, std::int32_t* out) const {
      if (instruction.is_per_channel && step_.channel_from_ != ChannelFrom::kElement) {
        for (int i = 0; i < count_; ++i)
          out[i] = static_cast<std::int32_t>(instruction.epilogue.apply(a[i], static_cast<int>(channel_)));
        return;
      }
      const int channel = instruction.is_per_channel ? static_cast<int>(first_element_) : 0;
      for (int row = 0; row < row_count_; ++row)
        instruction.epilogue.apply_row(a + row * element_count_, channel, element_count_,
                                       reinterpret_cast<std::uint8_t*>(out + row * element_count_));
    }

    // Calls `write` with the address of a block or, if the rows of the block are not contiguous, of a staging area.
    template <typename Write>
    void store(Write write) {
      const int size = bytes_of(step_.result_.type);
      const Walk& walk = step_.walks_.back();
      std::uint8_t* to = run_.at<std::uint8_t>(step_.result_.place) + offset(walk);
      if (row_count_ == 1 || walk.row == size * step_.row_length_) {
        write(to);
        return;
      }
      std::uint8_t* target = staging_ + kLaneBytes * step_.operands_.size();
      write(target);
      const auto row_bytes = static_cast<std::size_t>(element_count_) * static_cast<std::size_t>(size);
      for (int row = 0; row < row_count_; ++row)
        std::memcpy(to + row * walk.row, target + static_cast<std::size_t>(row) * row_bytes, row_bytes);
    }

    void store_lanes(std::uint8_t* target) const {
      const std::int32_t* from = lanes(step_.instructions_.size() - 1);
      switch (step_.result_.type) {
        case ElementType::kU8:
          step_.kernels_.store_u8(from, step_.low_, step_.high_, step_.bias_, target, count_);
          if (!step_.store_table_.empty())
            step_.kernels_.look_up(target, target, count_, step_.store_table_.data());
          break;
        case ElementType::kU16:
        case ElementType::kI16:
          step_.kernels_.store_16(from, step_.low_, step_.high_, step_.bias_, reinterpret_cast<std::uint16_t*>(target),
                                  count_);
          break;
        case ElementType::k32:
          std::memcpy(target, from, static_cast<std::size_t>(count_) * 4);
          break;
      }
    }

    const ElementStep& step_;
    const Run& run_;
    std::uint8_t* lanes_;
    std::uint8_t* staging_;
    const std::uint8_t* staged_[kMostOperands] = {};  // source of the staging area, for broadcast operands
    int staged_count_ = -1;
    std::size_t outer_count_;
    std::int64_t outer_index_[kMostAxes] = {};
    std::int64_t first_row_ = 0, first_element_ = 0, channel_ = 0;
    int row_count_ = 0, element_count_ = 0, count_ = 0;
  };

  static std::pair<std::int64_t, std::int64_t> range_of(ElementType type) {
    switch (type) {
      case ElementType::kU8: return {0, 255};
      case ElementType::kU16: return {0, 65535};
      case ElementType::kI16: return {-32768, 32767};
      case ElementType::k32: break;  // not limited: lanes are stored unchanged
    }
    return {2 * std::int64_t{INT32_MIN}, 2 * std::int64_t{INT32_MAX}};
  }

  void check(const ElementSpec& spec) {
    const auto span_of = [&](const ElementTensor& tensor, Span::Access access) {
      const auto item = static_cast<std::size_t>(bytes_of(tensor.type));
      if (tensor.strides.size() != spec.shape.size()) throw std::invalid_argument("elements: one stride per axis is needed");
      std::int64_t last = 0;
      for (std::size_t axis = 0; axis < spec.shape.size(); ++axis) {
        std::int64_t far = 0;
        if (spec.shape[axis] < 0 || tensor.strides[axis] < 0)
          throw std::invalid_argument("elements: negative extent or stride");
        if (tensor.strides[axis] % bytes_of(tensor.type) != 0)
          throw std::invalid_argument("elements: a stride is not a multiple of the element");
        if (spec.shape[axis] == 0) return Span{tensor.place, 0, item, access};
        if (__builtin_mul_overflow(spec.shape[axis] - 1, tensor.strides[axis], &far) ||
            __builtin_add_overflow(last, far, &last))
          throw std::invalid_argument("elements: extents are too large");
      }
      return Span{tensor.place, static_cast<std::size_t>(last) + item, item, access};
    };
    std::int64_t elements = 4;  // starts with the bytes of the largest element type
    for (std::size_t axis = 0; axis < spec.shape.size(); ++axis) {
      elements = product_of({elements, spec.shape[axis]});
      for (const ElementTensor& tensor : operands_) product_of({spec.shape[axis], tensor.strides.at(axis)});
      if (product_of({spec.shape[axis], result_.strides.at(axis)}) == 0 && spec.shape[axis] > 1)
        throw std::invalid_argument("elements: results are written more than once");
    }
    if (operands_.size() > kMostOperands || spec.shape.size() > kMostAxes)
      throw std::invalid_argument("elements: too many operands or axes");
    for (const ElementTensor& operand : operands_) spans_.push_back(span_of(operand, Span::Access::kReads));
    spans_.push_back(span_of(result_, Span::Access::kWrites));
    if (spec.channel_axis >= static_cast<int>(spec.shape.size())) throw std::invalid_argument("elements: no such axis");
    if (!store_table_.empty() && (result_.type != ElementType::kU8 || store_table_.size() != 256))
      throw std::invalid_argument("elements: a table has 256 entries of one byte");
    const auto [least, most] = range_of(result_.type);
    if (low_ > high_ || std::int64_t{low_} + bias_ < least || std::int64_t{high_} + bias_ > most)
      throw std::invalid_argument("elements: the limits do not fit the result");
    channels_ = spec.channel_axis < 0 ? 1 : spec.shape[static_cast<std::size_t>(spec.channel_axis)];
  }

  // Merges adjacent axes that are contiguous or broadcast in every tensor. The last two remaining axes are rows and
  // elements.
  void find_walk(const ElementSpec& spec) {
    struct Axis {
      std::int64_t extent;
      std::vector<std::int64_t> strides;
      bool is_channel;
    };
    const auto stride_of = [&](std::size_t tensor, std::size_t axis) {
      return tensor < operands_.size() ? operands_[tensor].strides[axis] : result_.strides[axis];
    };
    const std::size_t tensors = operands_.size() + 1;
    std::vector<Axis> axes;
    for (std::size_t axis = 0; axis < spec.shape.size(); ++axis) {
      if (spec.shape[axis] == 0) return;  // an empty tensor has no blocks
      if (spec.shape[axis] == 1) continue;
      Axis next{spec.shape[axis], {}, static_cast<int>(axis) == spec.channel_axis};
      for (std::size_t tensor = 0; tensor < tensors; ++tensor) next.strides.push_back(stride_of(tensor, axis));
      bool joins = !axes.empty() && !axes.back().is_channel && !next.is_channel;
      for (std::size_t tensor = 0; joins && tensor < tensors; ++tensor)
        joins = axes.back().strides[tensor] == next.strides[tensor] * next.extent;
      if (joins) {
        next.extent *= axes.back().extent;
        axes.back() = next;
      } else {
        axes.push_back(next);
      }
    }
    const auto one = [&] {
      Axis axis{1, {}, false};
      for (std::size_t tensor = 0; tensor < tensors; ++tensor)
        axis.strides.push_back(bytes_of(tensor < operands_.size() ? operands_[tensor].type : result_.type));
      return axis;
    };
    if (axes.empty()) axes.push_back(one());
    if (axes.size() == 1) axes.insert(axes.begin(), one());
    rows_ = axes[axes.size() - 2].extent;
    row_length_ = axes.back().extent;
    walks_.resize(tensors);
    elements_ = rows_ * row_length_;
    std::int64_t outer_count = 1;
    for (std::size_t axis = 0; axis + 2 < axes.size(); ++axis) {
      outer_.push_back(axes[axis].extent);
      outer_count *= axes[axis].extent;
      if (axes[axis].is_channel) {
        channel_from_ = ChannelFrom::kOuter;
        channel_outer_ = axis;
      }
    }
    if (axes[axes.size() - 2].is_channel) channel_from_ = ChannelFrom::kRow;
    if (axes.back().is_channel) channel_from_ = ChannelFrom::kElement;
    for (std::size_t tensor = 0; tensor < tensors; ++tensor) {
      for (std::size_t axis = 0; axis + 2 < axes.size(); ++axis)
        walks_[tensor].outer.push_back(axes[axis].strides[tensor]);
      walks_[tensor].row = axes[axes.size() - 2].strides[tensor];
      walks_[tensor].element = axes.back().strides[tensor];
      const int size = bytes_of(tensor < operands_.size() ? operands_[tensor].type : result_.type);
      const bool is_result = tensor == operands_.size();
      if (walks_[tensor].element != size && (is_result || walks_[tensor].element != 0))
        throw std::invalid_argument("elements: neighbours of a row must be adjacent");
    }
    elements_ *= outer_count;
    outer_blocks_ = outer_count;
    choose_blocks(kBlock);
  }

  void choose_blocks(std::int64_t block) {
    block_ = block;
    const bool is_short = row_length_ <= block / 2 && channel_from_ != ChannelFrom::kRow;
    rows_per_block_ = is_short ? std::min(rows_, block / row_length_) : 1;
    row_blocks_ = (rows_ + rows_per_block_ - 1) / rows_per_block_;
    chunks_ = rows_per_block_ > 1 ? 1 : (row_length_ + block - 1) / block;
    blocks_ = outer_blocks_ * row_blocks_ * chunks_;
  }

  // A residual add of two contiguous byte tensors in one pass needs no lanes in scratch memory, so its blocks may be
  // longer.
  void find_residual(const ElementSpec& spec) {
    is_residual_ = instructions_.size() == 2 && instructions_[0].kind == Kind::kLinearSum &&
                   instructions_[1].kind == Kind::kLanes &&
                   instructions_[1].code == static_cast<int>(LaneCode::kRescale) && !instructions_[1].is_wide &&
                   result_.type == ElementType::kU8;
    if (!is_residual_ || blocks_ == 0 || rows_ != 1) return;
    for (const Walk& walk : walks_)
      if (walk.element != 1) return;
    for (const Instruction& instruction : instructions_)
      for (const auto& values : instruction.parameters)
        if (values.size() != 1) return;
    choose_blocks(kLongBlock);
    prove_float(spec.instructions[1]);
  }

  // Uses the cheaper float rescale if it is proved exact for all possible sums.
  void prove_float(const ElementInstruction& given) {
    EpilogueSpec spec = given.epilogue;
    if (kernels_.residual_float == nullptr || given.low <= -(1 << 24)) return;
    const auto is_far = [](std::int32_t value) { return value > (1 << 24) || value < -(1 << 24); };
    if (is_far(low_) || is_far(high_) || is_far(bias_)) return;
    if (std::any_of(spec.offset.begin(), spec.offset.end(), is_far)) return;
    spec.bytes = 1;
    spec.low = low_ + bias_;
    spec.high = high_ + bias_;
    for (std::int32_t& offset : spec.offset) offset += bias_;
    if (spec.offset.empty()) spec.offset = {bias_};
    const std::int64_t largest = std::max<std::int64_t>({1, -std::int64_t{given.low}, given.high});
    FloatRequant form;
    if (!prove_float_requant(Epilogue(spec, 1), 0, largest, &form)) return;
    has_float_ = true;
    float_rescale_ = {form.high_part, form.low_part, static_cast<std::int16_t>(1 + 2 * spec.offset[0]),
                      static_cast<std::uint8_t>(spec.low), static_cast<std::uint8_t>(spec.high)};
  }

  // Repeats per-channel parameters for the rows of a block, with padding for a whole group of lanes. Scalars are not
  // repeated.
  void lay_out_parameters() {
    for (Instruction& instruction : instructions_) {
      for (auto& values : instruction.parameters) {
        if (!instruction.is_per_channel) continue;
        const bool is_inner = channel_from_ == ChannelFrom::kElement;
        const std::int64_t wanted = channels_ * (is_inner ? rows_per_block_ : 1) + kLaneGroup;
        std::vector<std::int32_t> laid(static_cast<std::size_t>(wanted));
        for (std::int64_t i = 0; i < wanted; ++i)
          laid[static_cast<std::size_t>(i)] =
              values.size() == 1 ? values[0] : values[static_cast<std::size_t>(i % channels_)];
        values = std::move(laid);
      }
    }
  }

  const ElementKernels& kernels_;
  std::vector<ElementTensor> operands_;
  ElementTensor result_;
  std::int32_t low_, high_, bias_;
  std::vector<std::uint8_t> store_table_;
  std::vector<Span> spans_;
  std::vector<Instruction> instructions_;
  std::vector<Walk> walks_;  // [operand], then the result
  std::vector<std::int64_t> outer_;
  std::int64_t channels_ = 1, outer_blocks_ = 0, block_ = kBlock;
  std::int64_t rows_ = 0, row_length_ = 0, rows_per_block_ = 1, row_blocks_ = 0, chunks_ = 1, blocks_ = 0, elements_ = 0;
  bool is_residual_ = false, has_float_ = false;
  FloatRescale float_rescale_;
  ChannelFrom channel_from_ = ChannelFrom::kNothing;
  std::size_t channel_outer_ = 0;
};

}  // namespace

std::shared_ptr<Step> make_elements(const ElementSpec& spec, Isa isa) {
  return std::make_shared<ElementStep>(spec, isa);
}

}  // namespace tpuconvert
