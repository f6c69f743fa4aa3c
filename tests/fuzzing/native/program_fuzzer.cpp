// libFuzzer target: loading of a plan and the kernels that move data. The bytes describe buffers and steps; what the
// constructors accept is run on memory of exactly these sizes, so that AddressSanitizer reports every byte outside.
#include <fuzzer/FuzzedDataProvider.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/program.h"
#include "movement/copy.h"
#include "movement/gather.h"
#include "movement/index_select.h"

namespace {

using namespace tpuconvert;

constexpr std::size_t kMostMemory = 1 << 16;
constexpr double kMostElements = 1 << 20;  // of one step: the target looks for wrong accesses, not for slow plans

// Mostly small numbers, some extreme ones.
std::int64_t number(FuzzedDataProvider& data) {
  switch (data.ConsumeIntegralInRange(0, 7)) {
    case 0: return data.ConsumeIntegral<std::int64_t>();
    case 1: return data.ConsumeIntegralInRange<std::int64_t>(-4096, 4096);
    case 2: return 0;
    default: return data.ConsumeIntegralInRange<std::int64_t>(0, 40);
  }
}

Place place(FuzzedDataProvider& data) {
  return {data.ConsumeIntegralInRange(-1, 8), static_cast<std::size_t>(data.ConsumeBool() ? 0 : number(data))};
}

std::vector<std::int64_t> numbers(FuzzedDataProvider& data, std::size_t count) {
  std::vector<std::int64_t> made;
  for (std::size_t index = 0; index < count; ++index) made.push_back(number(data));
  return made;
}

double product(const std::vector<std::int64_t>& extents) {
  double total = 1;
  for (const std::int64_t extent : extents) total *= static_cast<double>(extent);
  return total;
}

std::shared_ptr<const Step> step(FuzzedDataProvider& data) {
  switch (data.ConsumeIntegralInRange(0, 2)) {
    case 0: {
      CopySpec spec;
      spec.source = place(data);
      spec.target = place(data);
      const std::size_t rank = data.ConsumeIntegralInRange<std::size_t>(0, 6);
      spec.shape = numbers(data, rank);
      spec.source_strides = numbers(data, data.ConsumeBool() ? rank : data.ConsumeIntegralInRange<std::size_t>(0, 9));
      spec.target_strides = numbers(data, data.ConsumeBool() ? rank : data.ConsumeIntegralInRange<std::size_t>(0, 9));
      spec.itemsize = data.ConsumeBool() ? 1 << data.ConsumeIntegralInRange(0, 2) : static_cast<int>(number(data));
      spec.flip = static_cast<int>(number(data));
      return product(spec.shape) > kMostElements ? nullptr : make_copy(spec);
    }
    case 1: {
      GatherSpec spec;
      spec.source = place(data);
      spec.target = place(data);
      spec.outer = number(data);
      spec.extent = number(data);
      spec.inner_bytes = number(data);
      for (const std::int64_t index : numbers(data, data.ConsumeIntegralInRange<std::size_t>(0, 20)))
        spec.indices.push_back(static_cast<std::int32_t>(index));
      return make_gather(spec);
    }
    default: {
      IndexSelectSpec spec;
      spec.source = place(data);
      spec.indices = place(data);
      spec.target = place(data);
      spec.outer = number(data);
      spec.extent = number(data);
      spec.inner_bytes = number(data);
      spec.count = number(data);
      return make_index_select(spec);
    }
  }
}

// Memory outside of the arena, 64-byte aligned, with nothing readable after it.
using Bytes = std::unique_ptr<std::uint8_t, decltype(&std::free)>;

Bytes allocate(std::size_t size) {
  void* memory = nullptr;
  if (posix_memalign(&memory, 64, size == 0 ? 1 : size) != 0) std::abort();
  std::memset(memory, 1, size);
  return {static_cast<std::uint8_t*>(memory), &std::free};
}

void load_and_run(FuzzedDataProvider& data) {
  std::vector<Bytes> outside;
  std::vector<BufferPlan> buffers;
  std::vector<std::size_t> externals;
  std::size_t top = 0;
  const int count = data.ConsumeIntegralInRange(1, 8);
  for (int index = 0; index < count; ++index) {
    BufferPlan buffer;
    buffer.kind = static_cast<BufferPlan::Kind>(data.ConsumeIntegralInRange(0, 2));
    buffer.size = static_cast<std::size_t>(number(data));
    buffer.offset = data.ConsumeBool() ? top : static_cast<std::size_t>(number(data));
    if (buffer.kind == BufferPlan::Kind::kArena) {
      if (buffer.size < kMostMemory) top += (buffer.size + kSlack + 63) / 64 * 64;
    } else {
      if (buffer.size > kMostMemory) return;  // the bindings give a plan only buffers that exist
      buffer.has_slack = buffer.kind == BufferPlan::Kind::kConstant && data.ConsumeBool();
      outside.push_back(allocate(buffer.size + (buffer.has_slack ? kSlack : 0)));
      if (buffer.kind == BufferPlan::Kind::kConstant) buffer.data = outside.back().get();
      if (buffer.kind == BufferPlan::Kind::kExternal) externals.push_back(buffers.size());
    }
    buffers.push_back(buffer);
  }
  std::vector<Bytes> borders;
  for (const std::size_t index : externals) borders.push_back(allocate(buffers[index].size));
  std::vector<std::shared_ptr<const Step>> steps;
  for (int left = data.ConsumeIntegralInRange(0, 4); left > 0; --left) steps.push_back(step(data));
  const std::size_t arena = data.ConsumeBool() ? top : static_cast<std::size_t>(number(data));
  const int threads = data.ConsumeIntegralInRange(0, 2);
  const Program program(std::move(steps), buffers, arena, threads);
  if (program.arena_bytes() + program.scratch_bytes() > kMostMemory) return;
  const bool is_of_batch = data.ConsumeBool();
  const std::unique_ptr<Memory> memory = program.make_memory(is_of_batch ? 1 : program.threads());
  for (std::size_t index = 0; index < externals.size(); ++index)
    memory->set_external(static_cast<int>(externals[index]), borders[index].get());
  program.run(*memory, 0, program.steps());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* content, std::size_t size) {
  FuzzedDataProvider data(content, size);
  try {
    load_and_run(data);
  } catch (const std::invalid_argument&) {  // refused when the plan is loaded
  } catch (const std::out_of_range&) {      // an index that the model computes
  }
  return 0;
}
