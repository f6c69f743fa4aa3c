// The Python extension module: bindings of programs and runs. Each folder of kernels has its own bindings.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <tuple>
#include <utility>

#include "core/bind_observation.h"
#include "core/bind_spec.h"
#include "core/isa.h"
#include "core/kernel_table.h"
#include "core/program.h"

namespace nb = nanobind;

namespace tpuconvert {

namespace {

using Bytes = nb::ndarray<std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using BufferTuple = std::tuple<std::string, std::size_t, std::size_t>;
using ConstBytes = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// A program together with the Python objects that own the memory of its constants.
class OwningProgram {
 public:
  // `buffers` are (kind, offset, size). The k-th buffer of kind "constant" is stored in `constants[k]`.
  OwningProgram(std::vector<std::shared_ptr<const Step>> steps, const std::vector<BufferTuple>& buffers,
                std::vector<ConstBytes> constants, std::size_t arena_bytes, int threads)
      : constants_(std::move(constants)),
        program_(std::move(steps), plan(buffers, constants_), arena_bytes, threads) {}

  const Program& program() const { return program_; }

 private:
  static std::vector<BufferPlan> plan(const std::vector<BufferTuple>& buffers,
                                      const std::vector<ConstBytes>& constants) {
    std::vector<BufferPlan> plans;
    std::size_t next = 0;
    for (const auto& [kind, offset, size] : buffers) {
      if (kind == "arena") {
        plans.push_back({BufferPlan::Kind::kArena, offset, size, nullptr, true});
      } else if (kind == "external") {
        plans.push_back({BufferPlan::Kind::kExternal, 0, size, nullptr, false});
      } else if (kind == "constant") {
        const ConstBytes& bytes = constants.at(next++);
        if (bytes.shape(0) < size) throw std::invalid_argument("a constant is smaller than its buffer");
        plans.push_back({BufferPlan::Kind::kConstant, 0, size, bytes.data(), bytes.shape(0) - size >= kSlack});
      } else {
        throw std::invalid_argument("unknown kind of buffer '" + kind + "'");
      }
    }
    return plans;
  }

  std::vector<ConstBytes> constants_;
  Program program_;
};

std::vector<std::shared_ptr<const Step>> steps_of(nb::handle given) {
  const nb::object items = sequence_of(given);
  std::vector<std::shared_ptr<const Step>> steps;
  for (Py_ssize_t index = 0; index < PyTuple_Size(items.ptr()); ++index)
    steps.push_back(FromPython<const StepHolder&>::of(PyTuple_GetItem(items.ptr(), index)).step);
  return steps;
}

void check_memory(const Memory& memory, const OwningProgram& owner) {
  if (memory.program() != owner.program().identity()) throw std::invalid_argument("the memory belongs to another program");
}

void check_external(const OwningProgram& owner, int buffer, const std::uint8_t* data, std::size_t size, bool is_output) {
  const auto& buffers = owner.program().buffers();
  if (buffer < 0 || static_cast<std::size_t>(buffer) >= buffers.size() ||
      buffers[buffer].kind != BufferPlan::Kind::kExternal || buffers[buffer].size != size)
    throw std::invalid_argument("an array does not fit the external buffer");
  const Program::Demands& demands = owner.program().demands(buffer);
  if (reinterpret_cast<std::uintptr_t>(data) % demands.alignment != 0)
    throw std::invalid_argument("an array for an external buffer does not begin at a multiple of its elements' size");
  if (demands.is_written && !is_output) throw std::invalid_argument("a step would write to an input");
}

void set_external(Memory& memory, const OwningProgram& owner, int buffer, std::uint8_t* data, std::size_t size,
                  bool is_output) {
  check_memory(memory, owner);
  check_external(owner, buffer, data, size, is_output);
  memory.set_external(buffer, data);
}

// The arrays of a batch for some of the external buffers, by buffer.
template <typename Array>
void add_batch_arrays(const OwningProgram& owner, const std::vector<std::pair<int, Array>>& given, int parts,
                      bool is_output, std::vector<BatchArray>* arrays) {
  for (const auto& [buffer, bytes] : given) {
    const std::size_t stride = bytes.shape(0) / static_cast<std::size_t>(parts);
    auto* data = const_cast<std::uint8_t*>(bytes.data());
    if (stride * static_cast<std::size_t>(parts) != bytes.shape(0))
      throw std::invalid_argument("an array does not fit the external buffer of each part");
    check_external(owner, buffer, data, stride, is_output);
    if (stride % owner.program().demands(buffer).alignment != 0)
      throw std::invalid_argument("an array of a batch has parts that do not begin at a multiple of its elements' size");
    arrays->push_back({buffer, data, stride});
  }
}

void check_range(const OwningProgram& owner, std::size_t first, std::size_t last) {
  if (first > last || last > owner.program().steps()) throw std::out_of_range("no such steps");
}

}  // namespace
}  // namespace tpuconvert

// Kernels throw std::invalid_argument for unsupported parameters. A separate Python type distinguishes it from errors
// of the planner.
void translate_refusal(const std::exception_ptr& error, void* type) {
  try {
    std::rethrow_exception(error);
  } catch (const std::invalid_argument& refusal) {
    PyErr_SetString(static_cast<PyObject*>(type), refusal.what());
  }
}

NB_MODULE(_native, module) {
  using namespace tpuconvert;
  const nb::object declined = nb::steal(PyErr_NewException("tpuconvert.runtime._native.Declined", PyExc_ValueError, nullptr));
  module.attr("Declined") = declined;
  nb::register_exception_translator(translate_refusal, declined.ptr());  // the module keeps `declined` alive
  module.doc() = "Kernels and plans of the native engine.";
  module.attr("SLACK") = kSlack;
  module.attr("STORED_BIAS") = kStoredBias;
  module.def("available_isas", [] {
    std::vector<std::string> names;
    for (const Isa isa : available_isas()) names.emplace_back(name_of(isa));
    return names;
  });
  module.def(
      "kernels",
      [](const std::string& architecture) {
        std::vector<std::pair<std::string, std::vector<std::string>>> found;
        for (const KernelEntry& entry : kernel_table()) {
          std::vector<std::string> isas;
          const Variants& variants = entry.variants;
          const std::vector<Isa>& chosen = architecture == "x86_64"    ? variants.x86_64
                                           : architecture == "aarch64" ? variants.aarch64
                                                                       : variants.of_this_machine();
          for (const Isa isa : chosen) isas.emplace_back(name_of(isa));
          found.emplace_back(entry.name, std::move(isas));
        }
        return found;
      },
      nb::arg("architecture") = "",
      "Return (name, instruction sets with an implementation) of every kernel, for this machine's architecture, \"x86_64\" "
      "or \"aarch64\".");
  nb::class_<Place>(module, "Place")
      .def("__init__", [](Place* self, int buffer, std::size_t offset) { new (self) Place{buffer, offset}; },
           nb::arg("buffer"), nb::arg("offset") = 0)
      .def_ro("buffer", &Place::buffer)
      .def_ro("offset", &Place::offset);
  nb::class_<StepHolder>(module, "Step")
      .def_prop_ro("kind", [](const StepHolder& held) { return held.step->kind(); })
      .def_prop_ro("packed_bytes", [](const StepHolder& held) { return held.step->packed_bytes(); })
      .def_prop_ro("scratch_bytes", [](const StepHolder& held) { return held.step->scratch_bytes(); });
  nb::class_<Memory>(module, "Memory")
      .def(
          "read",
          [](nb::handle self, const OwningProgram& owner, int buffer) {
            // A view of a buffer's bytes, alive as long as the memory is.
            const auto& buffers = owner.program().buffers();
            Memory& memory = nb::cast<Memory&>(self);
            check_memory(memory, owner);
            if (buffer < 0 || static_cast<std::size_t>(buffer) >= buffers.size() || memory.buffer(buffer) == nullptr)
              throw std::out_of_range("no such buffer");
            return nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>(memory.buffer(buffer), {buffers[buffer].size},
                                                                     self);
          },
          nb::arg("program"), nb::arg("buffer"))
      .def_prop_ro("failed_step", &Memory::failed_step)
      .def("set_input",
           [](Memory& memory, const OwningProgram& owner, int buffer, const ConstBytes& bytes) {
             set_external(memory, owner, buffer, const_cast<std::uint8_t*>(bytes.data()), bytes.shape(0), false);
           })
      .def("set_output", [](Memory& memory, const OwningProgram& owner, int buffer, const Bytes& bytes) {
        set_external(memory, owner, buffer, bytes.data(), bytes.shape(0), true);
      });
  nb::class_<ObservationHolder>(module, "Observation");
  nb::class_<Observations>(module, "Observations").def_prop_ro("size", [](const Observations& found) {
    return found.values.size();
  });
  nb::class_<OwningProgram>(module, "Program")
      .def("__init__",
           [](OwningProgram* self, nb::handle steps, nb::handle buffers, nb::handle constants, std::size_t arena_bytes,
              int threads) {
             try {
               new (self) OwningProgram(steps_of(steps), FromPython<std::vector<BufferTuple>>::of(buffers),
                                        FromPython<std::vector<ConstBytes>>::of(constants), arena_bytes, threads);
             } catch (const nb::cast_error&) {
               throw nb::type_error("Program: steps, buffers or constants have a wrong type");
             }
           },
           nb::arg("steps"), nb::arg("buffers"), nb::arg("constants"), nb::arg("arena_bytes"), nb::arg("threads"))
      .def_prop_ro("steps", [](const OwningProgram& owner) { return owner.program().steps(); })
      .def_prop_ro("arena_bytes", [](const OwningProgram& owner) { return owner.program().arena_bytes(); })
      .def_prop_ro("packed_bytes", [](const OwningProgram& owner) { return owner.program().packed_bytes(); })
      .def_prop_ro("scratch_bytes", [](const OwningProgram& owner) { return owner.program().scratch_bytes(); })
      .def_prop_ro("threads", [](const OwningProgram& owner) { return owner.program().threads(); })
      .def("kind",
           [](const OwningProgram& owner, std::size_t step) {
             check_range(owner, step, step + 1);
             return std::string(owner.program().kind(step));
           })
      .def(
          "make_memory",
          [](const OwningProgram& owner, bool is_of_batch) {
            return owner.program().make_memory(is_of_batch ? 1 : owner.program().threads());
          },
          nb::arg("is_of_batch") = false)
      .def(
          "run_batch",
          [](const OwningProgram& owner, nb::handle memories, nb::handle inputs, nb::handle outputs, int parts) {
            if (parts < 1) throw std::invalid_argument("a batch has at least one part");
            std::vector<Memory*> areas;
            std::vector<std::pair<int, ConstBytes>> read;
            std::vector<std::pair<int, Bytes>> written;
            try {
              for (Memory& memory : FromPython<std::vector<std::reference_wrapper<Memory>>>::of(memories))
                areas.push_back(&memory);
              read = FromPython<std::vector<std::pair<int, ConstBytes>>>::of(inputs);
              written = FromPython<std::vector<std::pair<int, Bytes>>>::of(outputs);
            } catch (const nb::cast_error&) {
              throw nb::type_error("run_batch: memories, inputs or outputs have a wrong type");
            }
            std::vector<BatchArray> arrays;
            add_batch_arrays(owner, read, parts, false, &arrays);
            add_batch_arrays(owner, written, parts, true, &arrays);
            nb::gil_scoped_release released;
            owner.program().run_batch(areas, arrays, parts);
          },
          nb::arg("memories"), nb::arg("inputs"), nb::arg("outputs"), nb::arg("parts"))
      .def(
          "run",
          [](const OwningProgram& owner, Memory& memory, std::size_t first, std::size_t last) {
            check_range(owner, first, last);
            nb::gil_scoped_release released;
            owner.program().run(memory, first, last);
          },
          nb::arg("memory"), nb::arg("first"), nb::arg("last"))
      .def(
          "observations",
          [](const OwningProgram& owner, nb::handle values) {
            Observations found{owner.program().identity(), {}};
            try {
              for (auto& [steps, observation] :
                   FromPython<std::vector<std::pair<std::size_t, std::shared_ptr<Observation>>>>::of(values))
                found.values.push_back({steps, std::move(observation)});
            } catch (const nb::cast_error&) {
              throw nb::type_error("observations: values have a wrong type");
            }
            owner.program().check_observed(found.values);
            return found;
          },
          nb::arg("values"),
          "Return the values of an observed run: the number of steps after which each is complete, and what takes it; "
          "None for a value that the caller looks at.")
      .def(
          "run_observed",
          [](const OwningProgram& owner, Memory& memory, const Observations& observed, std::size_t steps,
             std::size_t values) {
            if (observed.program != owner.program().identity())
              throw std::invalid_argument("the observations belong to another program");
            check_range(owner, steps, owner.program().steps());
            nb::gil_scoped_release released;
            const Program::Progress found = owner.program().run_observed(memory, observed.values, {steps, values});
            return std::pair(found.steps, found.values);
          },
          nb::arg("memory"), nb::arg("observed"), nb::arg("steps"), nb::arg("values"),
          "Run from a number of steps and of values that are done to the end, or to a value that the caller has to look at. "
          "Return both numbers there.")
      .def(
          "profile",
          [](const OwningProgram& owner, Memory& memory, std::size_t first, std::size_t last) {
            check_range(owner, first, last);
            nb::gil_scoped_release released;
            return owner.program().profile(memory, first, last);
          },
          nb::arg("memory"), nb::arg("first"), nb::arg("last"));
  for (const Binding::Bind bind : Binding::all()) bind(module);
}
