// Python bindings of a native module, and nothing else: arrays come in through the buffer protocol, pointers as integers.
// Included by the one bind.cpp of a module; `cpu_features.h` and the kernel list are those of its folder.
#pragma once
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>

#include <time.h>

#include "bind/fields.h"
#include "cpu_features.h"
#include "exec/arena.h"
#include "exec/program.h"
#include "exec/registry.h"
#if defined(__linux__)
#include "exec/file_map.h"
#endif

namespace octavo {
namespace {

double now_s() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// An int32 array whose last axis is contiguous, or null for None.
const int32_t* i32(const py::object& object, const char* name, int64_t count) {
  if (object.is_none()) return nullptr;
  const py::buffer_info info = py::buffer(object).request();
  if (info.itemsize != 4 || (info.format != "i" && info.format != "l"))
    throw std::invalid_argument(std::string(name) + ": needs int32, found format " + info.format);
  if (info.ndim > 0 && info.shape[info.ndim - 1] > 1 && info.strides[info.ndim - 1] != 4)
    throw std::invalid_argument(std::string(name) + ": needs a contiguous array, found steps of " +
                                std::to_string(info.strides[info.ndim - 1]) + " bytes");
  if (info.size < count)
    throw std::invalid_argument(std::string(name) + ": needs " + std::to_string(count) + " values, found " + std::to_string(info.size));
  return static_cast<const int32_t*>(info.ptr);
}

class PyTeam {
 public:
  PyTeam(int num_threads, int spin) : team_(num_threads, spin) {}
  Team& team() { return team_; }
  std::mutex& lock() { return lock_; }

 private:
  Team team_;
  std::mutex lock_;
};

// A step's arrays; they must outlive the run (the caller holds them).
struct PyStep {
  Step step{};
  std::vector<py::object> held;

  PyStep(int64_t num_tokens, int64_t num_seqs, int64_t num_logits, const py::object& token_ids, const py::object& positions,
         const py::object& query_start, const py::object& kv_len, const py::object& token_seq, const py::object& token_types,
         const py::object& logits_rows, uintptr_t pool, const py::list& tables) {
    step.num_tokens = num_tokens;
    step.num_seqs = num_seqs;
    step.num_logits = num_logits;
    step.token_ids = i32(token_ids, "token_ids", num_tokens);
    step.positions = i32(positions, "positions", num_tokens);
    step.query_start = i32(query_start, "query_start", num_seqs + 1);
    step.kv_len = i32(kv_len, "kv_len", num_seqs);
    step.token_seq = i32(token_seq, "token_seq", num_tokens);
    step.token_types = i32(token_types, "token_types", num_tokens);
    step.logits_rows = i32(logits_rows, "logits_rows", num_logits);
    step.pool = reinterpret_cast<uint8_t*>(pool);
    held = {token_ids, positions, query_start, kv_len, token_seq, token_types, logits_rows};
    if (tables.size() > kMaxGroups) throw std::invalid_argument("more than 8 KV groups");
    for (size_t g = 0; g < tables.size(); ++g) {
      const py::buffer_info info = py::buffer(tables[g]).request();
      if (info.ndim != 2 || info.shape[0] < num_seqs) throw std::invalid_argument("block table: needs [num_seqs, blocks] int32");
      step.groups[g] = {i32(tables[g], "block_table", 0), info.strides[0] / 4};
      held.push_back(tables[g]);
    }
  }
};

class PyProgram {
 public:
  using Bands = std::vector<std::pair<int64_t, std::string>>;
  size_t add(const Bands& bands, std::pair<int32_t, int32_t> rows, const py::dict& fields) {
    if (bands.empty() || bands.size() > kMaxBands) throw std::invalid_argument("an instruction has 1 to 4 kernels");
    Instruction ins{};
    for (const auto& [from, name] : bands) {
      const KernelRow* row = runnable(name);
      ins.bands[ins.num_bands++] = {from, row};
      if (row->fields != ins.bands[0].row->fields) throw std::invalid_argument(bands[0].second + " and " + name + " take different arguments");
    }
    ins.rows = Rows{rows.first, rows.second};
    fill(ins.args, *ins.bands[0].row, fields);
    bands_.push_back(bands);
    return program_.add(ins);
  }
  void set(const py::dict& fields) {
    for (Instruction& ins : program_.list()) refill(ins.args, *ins.bands[0].row, fields);
  }
  size_t size() const { return program_.list().size(); }
  const std::vector<Bands>& bands() const { return bands_; }
  void run(PyTeam& team, const PyStep& step, size_t first, size_t last) { run_timed(team, step, first, last, nullptr); }
  std::vector<double> profile(PyTeam& team, const PyStep& step, size_t first, size_t last) {
    std::vector<double> clock(size());
    run_timed(team, step, first, last, clock.data());
    return {clock.begin() + std::min(first, size()), clock.begin() + std::min(last, size())};
  }

 private:
  void run_timed(PyTeam& team, const PyStep& step, size_t first, size_t last, double* clock) {
    if (last > size()) last = size();
    if (first >= last) return;
    py::gil_scoped_release release;
    const std::lock_guard<std::mutex> guard(team.lock());
    program_.run(team.team(), step.step, first, last, clock, now_s);
  }
  Program program_;
  std::vector<Bands> bands_;  // of its instructions
};

py::list kernels() {
  size_t count = 0;
  const KernelRow* rows = kernel_rows(&count);
  py::list out;
  for (size_t i = 0; i < count; ++i) {
    py::list fields;
    for (uint32_t f = 0; f < rows[i].num_fields; ++f) fields.append(rows[i].fields[f].name);
    out.append(py::make_tuple(rows[i].op, rows[i].name, rows[i].level, rows[i].required, fields));
  }
  return out;
}

py::dict levels() {
  py::dict out;
  for (const Level& level : kLevels) out[level.name] = level.required;
  return out;
}

// Fills the module of `platform`, as octavo.platforms.registry names it.
void fill_module(py::module_& m, const char* platform) {
  m.doc() = "Kernels and the recorded-program executor; used through octavo.platforms only.";
  m.attr("platform") = platform;
  m.def("available_features", &available_features, "Feature bits this processor and system allow.");
  m.def("levels", &levels, "Level name -> required feature bits, slowest first.");
  m.def("kernels", &kernels, "Rows (op, name, level, required bits, field names).");

  const auto own = py::module_local();  // tests load the emulated module, which has the same classes, beside this one
  py::class_<Arena>(m, "Arena", py::buffer_protocol(), own, "Zeroed, 2 MiB-aligned memory of `bytes`, touched only when used.")
      .def(py::init<int64_t>(), py::arg("bytes"))
      .def_property_readonly("address", [](const Arena& a) { return reinterpret_cast<uintptr_t>(a.start()); })
      .def_property_readonly("bytes", &Arena::bytes)
      .def_buffer([](Arena& a) {
        return py::buffer_info(a.start(), 1, py::format_descriptor<uint8_t>::format(), 1, {a.bytes()}, {1});
      });

#if defined(__linux__)
  py::class_<FileMap>(m, "FileMap", py::buffer_protocol(), own, "A file mapped read-only; see csrc_common/exec/file_map.h.")
      .def(py::init<int, int64_t>(), py::arg("fd"), py::arg("bytes"))
      .def("settle", &FileMap::settle, py::arg("at"), py::arg("bytes"), py::call_guard<py::gil_scoped_release>())
      .def_buffer([](FileMap& f) {
        return py::buffer_info(const_cast<uint8_t*>(f.start()), 1, py::format_descriptor<uint8_t>::format(), 1, {f.bytes()}, {1},
                               true);
      });
#endif

  py::class_<PyTeam>(m, "Team", "Persistent threads; the caller is the first.")
      .def(py::init<int, int>(), py::arg("num_threads"), py::arg("spin"))
      .def("place", [](PyTeam& t, const std::vector<std::vector<int>>& cpus) { return t.team().place(cpus); })
      .def_property_readonly("num_threads", [](PyTeam& t) { return t.team().num_threads(); });

  py::class_<PyStep>(m, "Step", "One step's arrays; see csrc_common/exec/step.h.")
      .def(py::init<int64_t, int64_t, int64_t, const py::object&, const py::object&, const py::object&, const py::object&,
                    const py::object&, const py::object&, const py::object&, uintptr_t, const py::list&>(),
           py::arg("num_tokens"), py::arg("num_seqs"), py::arg("num_logits"), py::arg("token_ids"), py::arg("positions"),
           py::arg("query_start"), py::arg("kv_len"), py::arg("token_seq"), py::arg("token_types"), py::arg("logits_rows"),
           py::arg("pool"), py::arg("tables"));

  py::class_<PyProgram>(m, "Program", "A flat list of kernel calls.")
      .def(py::init<>())
      .def("add", &PyProgram::add, py::arg("bands"), py::arg("rows"), py::arg("fields"))
      .def("set", &PyProgram::set, py::arg("fields"), "New values of some fields, in every instruction.")
      .def("__len__", &PyProgram::size)
      .def_property_readonly("bands", &PyProgram::bands)
      .def("run", &PyProgram::run, py::arg("team"), py::arg("step"), py::arg("first"), py::arg("last"))
      .def("profile", &PyProgram::profile, py::arg("team"), py::arg("step"), py::arg("first") = 0,
           py::arg("last") = SIZE_MAX);
}

}  // namespace
}  // namespace octavo
