// Bindings of kernels to Python. Each kernel takes a spec, an object whose constructor accepts every field as a
// keyword.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/isa.h"
#include "core/kernel_table.h"
#include "core/step.h"

namespace tpuconvert {

template <typename T>
using PythonVector = nanobind::ndarray<const T, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;

// Registers a function that is called when the module is loaded. A file with a kernel defines one Binding at namespace
// scope, so there is no list of kernels to edit.
class Binding {
 public:
  using Bind = void (*)(nanobind::module_& module);

  explicit Binding(Bind bind);
  static const std::vector<Bind>& all();
};

// Converts a Python object to a field of a spec. Numeric vectors are copied from NumPy arrays or from sequences.
template <typename T>
struct FieldFromPython {
  static void set(void* field, nanobind::handle value) { *static_cast<T*>(field) = nanobind::cast<T>(value); }
};

template <typename T>
struct FieldFromPython<std::vector<T>> {
  static void set(void* field, nanobind::handle value) {
    auto* vector = static_cast<std::vector<T>*>(field);
    if constexpr (std::is_arithmetic_v<T>) {
      if (nanobind::ndarray_check(value)) {
        const auto array = nanobind::cast<PythonVector<T>>(value);
        vector->assign(array.data(), array.data() + array.shape(0));
        return;
      }
    }
    *vector = nanobind::cast<std::vector<T>>(value);
  }
};

struct SpecField {
  std::string name;
  bool is_required;
  std::size_t offset;  // bytes from the start of the spec to the address passed to `set`
  std::function<void(void* field, nanobind::handle)> set;
};

// Sets the fields of a spec from keyword arguments. None leaves a field at its default. Throws nanobind::type_error for
// missing and unknown fields and for values of the wrong type.
void assign_fields(const std::vector<SpecField>& fields, const std::string& spec_name, const nanobind::kwargs& given,
                   void* spec);

// Binds a struct as a Python class. Fields added by `required` have no default; fields added by `field` are optional.
template <typename Spec>
class SpecClass {
 public:
  SpecClass(nanobind::module_& module, const char* name) : fields_(std::make_shared<std::vector<SpecField>>()) {
    nanobind::class_<Spec>(module, name)
        .def("__init__", [fields = fields_, name = std::string(name)](Spec* self, const nanobind::kwargs& given) {
          Spec spec;
          assign_fields(*fields, name, given, &spec);
          new (self) Spec(std::move(spec));
        });
  }

  template <typename T, typename Owner>
  SpecClass& required(const char* name, T Owner::*member) {
    return add({name, true, offset_of(member), &FieldFromPython<T>::set});
  }

  template <typename T, typename Owner>
  SpecClass& field(const char* name, T Owner::*member) {
    return add({name, false, offset_of(member), &FieldFromPython<T>::set});
  }

  // Adds a field whose Python type differs from its C++ type: `convert` receives a `Given` and stores it in the spec.
  template <typename Given, typename Convert>
  SpecClass& required_as(const char* name, Convert convert) {
    return add({name, true, 0, converter<Given>(convert)});
  }

  template <typename Given, typename Convert>
  SpecClass& field_as(const char* name, Convert convert) {
    return add({name, false, 0, converter<Given>(convert)});
  }

 private:
  template <typename T, typename Owner>
  static std::size_t offset_of(T Owner::*member) {
    const Spec spec;
    return static_cast<std::size_t>(reinterpret_cast<const char*>(&(spec.*member)) - reinterpret_cast<const char*>(&spec));
  }

  template <typename Given, typename Convert>
  static std::function<void(void*, nanobind::handle)> converter(Convert convert) {
    return [convert](void* spec, nanobind::handle value) { convert(static_cast<Spec*>(spec), nanobind::cast<Given>(value)); };
  }

  SpecClass& add(SpecField field) {
    fields_->push_back(std::move(field));
    return *this;
  }

  std::shared_ptr<std::vector<SpecField>> fields_;
};

// Binds the function that makes a step as `name(spec, isa)` and adds it to the kernel table.
template <typename Spec, typename Make>
void bind_kernel(nanobind::module_& module, const char* name, const Variants& variants, Make make) {
  add_kernel({name, variants});
  module.def(
      name, [make](const Spec& spec, const std::string& isa) { return make(spec, isa_named(isa)); }, nanobind::arg("spec"),
      nanobind::arg("isa"));
}

}  // namespace tpuconvert
