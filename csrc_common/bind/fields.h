// Fills a kernel's arguments from Python values, by the table of its fields (exec/kernel.h).
#pragma once
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "cpu_features.h"
#include "exec/registry.h"

namespace py = pybind11;

namespace octavo {
namespace {

const KernelRow* row_by_name(const std::string& name) {
  size_t count = 0;
  const KernelRow* rows = kernel_rows(&count);
  for (size_t i = 0; i < count; ++i)
    if (name == rows[i].name) return &rows[i];
  throw std::invalid_argument("no kernel is called " + name + "; kernels() lists them");
}

const KernelRow* runnable(const std::string& name) {
  const KernelRow* row = row_by_name(name);
  if (row->required & ~available_features()) throw std::invalid_argument(name + ": this processor lacks its features");
  return row;
}

constexpr const char* kOtherSources = "; this module and the Python code are of different sources: install again (ci/install)";

// Puts a value into its field. A pointer is an address, or an array whose address is meant; the caller keeps that alive as
// long as the program runs.
void put(uint8_t* args, const Field& field, const py::handle& value) {
  uint8_t* at = args + field.offset;
  switch (field.kind) {
    case FieldKind::pointer: {
      uintptr_t v;
      if (PyLong_Check(value.ptr()))
        v = value.cast<uintptr_t>();
      else if (py::isinstance<py::array>(value))  // ten times as fast as the buffer protocol
        v = reinterpret_cast<uintptr_t>(py::reinterpret_borrow<py::array>(value).data());
      else
        v = reinterpret_cast<uintptr_t>(py::reinterpret_borrow<py::buffer>(value).request().ptr);
      std::memcpy(at, &v, sizeof v);
      break;
    }
    case FieldKind::i64: {
      const int64_t v = value.cast<int64_t>();
      std::memcpy(at, &v, sizeof v);
      break;
    }
    case FieldKind::i32: {
      const int32_t v = value.cast<int32_t>();
      std::memcpy(at, &v, sizeof v);
      break;
    }
    case FieldKind::f32: {
      const float v = value.cast<float>();
      std::memcpy(at, &v, sizeof v);
      break;
    }
    case FieldKind::rows: {
      const auto v = value.cast<std::pair<int32_t, int32_t>>();
      const Rows rows{v.first, v.second};
      std::memcpy(at, &rows, sizeof rows);
      break;
    }
    case FieldKind::kernel: {
      const KernelRow* row = runnable(value.cast<std::string>());
      std::memcpy(at, &row, sizeof row);
      break;
    }
  }
}

void fill(uint8_t* args, const KernelRow& row, const py::dict& values) {
  std::memset(args, 0, kMaxArgsBytes);
  size_t num_left = values.size();
  for (uint32_t i = 0; i < row.num_fields; ++i) {
    const Field& field = row.fields[i];
    const bool is_given = values.contains(field.name);
    if (!is_given && !field.is_optional)
      throw std::invalid_argument(std::string(row.name) + ": field " + field.name + " is missing" + kOtherSources);
    if (!is_given) continue;
    put(args, field, values[field.name]);
    --num_left;
  }
  if (num_left != 0)
    throw std::invalid_argument(std::string(row.name) + ": got " + std::to_string(values.size()) + " fields, of which it lacks " +
                                std::to_string(num_left) + kOtherSources);
}

// Puts new values into some fields; quickest if they come in the order of the row's table.
void refill(uint8_t* args, const KernelRow& row, const py::dict& values) {
  uint32_t at = 0;
  for (const auto& [key, value] : values) {
    const char* name = PyUnicode_AsUTF8(key.ptr());
    if (!name) throw py::error_already_set();
    uint32_t tried = 0;
    while (tried < row.num_fields && std::strcmp(row.fields[at].name, name) != 0) {
      at = at + 1 < row.num_fields ? at + 1 : 0;
      ++tried;
    }
    if (tried == row.num_fields) throw std::invalid_argument(std::string(row.name) + ": it has no field " + name + kOtherSources);
    put(args, row.fields[at], value);
  }
}

}  // namespace
}  // namespace octavo
