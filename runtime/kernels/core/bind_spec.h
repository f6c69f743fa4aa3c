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
#include <stdexcept>
#include <string>
#include <tuple>
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

// Converts a Python object to a C++ value. The conversions of nanobind for containers and strings are noexcept, so that a
// failed allocation in them would terminate the process; these pass std::bad_alloc on, which becomes MemoryError.
// Numeric vectors are copied from NumPy arrays or from sequences. Throws nanobind::cast_error for a wrong type, and
// std::overflow_error for an integer that does not fit.
template <typename T>
struct FromPython {
  static T of(nanobind::handle value) {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      T result;
      if (nanobind::try_cast(value, result)) return result;
      if (PyLong_Check(value.ptr())) throw std::overflow_error("an integer is out of range");
    }
    return nanobind::cast<T>(value);
  }
};

template <>
struct FromPython<std::string> {
  static std::string of(nanobind::handle value) { return nanobind::cast<const char*>(value); }
};

template <typename T>
struct FromPython<std::reference_wrapper<T>> {  // of an object that Python owns
  static std::reference_wrapper<T> of(nanobind::handle value) { return nanobind::cast<T&>(value); }
};

// A step as Python holds it: nanobind's conversion of std::shared_ptr allocates in a noexcept function.
struct StepHolder {
  std::shared_ptr<const Step> step;
};

template <>
struct FromPython<std::shared_ptr<const Step>> {
  static std::shared_ptr<const Step> of(nanobind::handle value) {
    return value.is_none() ? nullptr : nanobind::cast<const StepHolder&>(value).step;
  }
};

template <typename T>
struct FromPython<std::optional<T>> {
  static std::optional<T> of(nanobind::handle value) {
    if (value.is_none()) return std::nullopt;
    return FromPython<T>::of(value);
  }
};

// The elements of a sequence other than text, as a tuple: the functions for other sequences are not in the stable ABI.
// `expected` is their number, or -1 for any.
inline nanobind::object sequence_of(nanobind::handle value, std::ptrdiff_t expected = -1) {
  if (!PySequence_Check(value.ptr()) || PyUnicode_Check(value.ptr()) || PyBytes_Check(value.ptr()))
    throw nanobind::cast_error();
  nanobind::object items = nanobind::steal(PySequence_Tuple(value.ptr()));
  if (!items.is_valid()) nanobind::raise_python_error();
  if (expected >= 0 && PyTuple_Size(items.ptr()) != expected) throw nanobind::cast_error();
  return items;
}

template <typename T>
struct FromPython<std::vector<T>> {
  static std::vector<T> of(nanobind::handle value) {
    if constexpr (std::is_arithmetic_v<T>) {
      if (nanobind::ndarray_check(value)) {
        const auto array = nanobind::cast<PythonVector<T>>(value);
        return {array.data(), array.data() + array.shape(0)};
      }
    }
    const nanobind::object items = sequence_of(value);
    std::vector<T> made;
    made.reserve(static_cast<std::size_t>(PyTuple_Size(items.ptr())));
    for (Py_ssize_t index = 0; index < PyTuple_Size(items.ptr()); ++index)
      made.push_back(FromPython<T>::of(PyTuple_GetItem(items.ptr(), index)));
    return made;
  }
};

template <typename... Ts>
struct FromPython<std::tuple<Ts...>> {
  static std::tuple<Ts...> of(nanobind::handle value) { return all(value, std::index_sequence_for<Ts...>()); }

 private:
  template <std::size_t... Index>
  static std::tuple<Ts...> all(nanobind::handle value, std::index_sequence<Index...>) {
    const nanobind::object items = sequence_of(value, sizeof...(Ts));
    return {FromPython<Ts>::of(PyTuple_GetItem(items.ptr(), Index))...};
  }
};

template <typename First, typename Second>
struct FromPython<std::pair<First, Second>> {
  static std::pair<First, Second> of(nanobind::handle value) {
    const nanobind::object items = sequence_of(value, 2);
    return {FromPython<First>::of(PyTuple_GetItem(items.ptr(), 0)),
            FromPython<Second>::of(PyTuple_GetItem(items.ptr(), 1))};
  }
};

template <typename T>
void set_field(void* field, nanobind::handle value) {
  *static_cast<T*>(field) = FromPython<T>::of(value);
}

struct SpecField {
  std::string name;
  bool is_required;
  std::size_t offset;  // bytes from the start of the spec to the address passed to `set`
  std::function<void(void* field, nanobind::handle)> set;
};

// Sets the fields of a spec from keyword arguments. None leaves a field at its default. Throws nanobind::type_error for
// missing and unknown fields and for values of the wrong type, std::overflow_error for an integer that does not fit.
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
    return add({name, true, offset_of(member), &set_field<T>});
  }

  template <typename T, typename Owner>
  SpecClass& field(const char* name, T Owner::*member) {
    return add({name, false, offset_of(member), &set_field<T>});
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
    return [convert](void* spec, nanobind::handle value) { convert(static_cast<Spec*>(spec), FromPython<Given>::of(value)); };
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
      name, [make](const Spec& spec, const char* isa) { return StepHolder{make(spec, isa_named(isa))}; },
      nanobind::arg("spec"), nanobind::arg("isa"));
}

}  // namespace tpuconvert
