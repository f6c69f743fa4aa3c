#include "core/bind_spec.h"

#include <stdexcept>

namespace nb = nanobind;

namespace tpuconvert {

namespace {

std::vector<Binding::Bind>& bindings() {
  static std::vector<Binding::Bind> all;
  return all;
}

}  // namespace

Binding::Binding(Bind bind) { bindings().push_back(bind); }

const std::vector<Binding::Bind>& Binding::all() { return bindings(); }

void assign_fields(const std::vector<SpecField>& fields, const std::string& spec_name, const nb::kwargs& given,
                   void* spec) {
  const auto refuse = [&](const std::string& message) { throw nb::type_error((spec_name + ": " + message).c_str()); };
  std::size_t known = 0;
  for (const SpecField& field : fields) {
    const nb::str key(field.name.c_str());
    if (!given.contains(key)) {
      if (field.is_required) refuse("field '" + field.name + "' is missing");
      continue;
    }
    ++known;
    const nb::object value = given[key];
    if (value.is_none() && !field.is_required) continue;
    try {
      field.set(static_cast<char*>(spec) + field.offset, value);
    } catch (const nb::cast_error&) {
      refuse("field '" + field.name + "' has a value of the wrong type");
    } catch (const std::overflow_error&) {
      throw std::overflow_error(spec_name + ": field '" + field.name + "' has an integer that does not fit");
    }
  }
  if (known != given.size()) refuse("a field is unknown");
}

}  // namespace tpuconvert
