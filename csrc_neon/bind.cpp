// The Arm module.
#include "bind/bind.h"

#ifndef OCTAVO_MODULE
#define OCTAVO_MODULE _neon
#endif

PYBIND11_MODULE(OCTAVO_MODULE, m) {
  octavo::fill_module(m, "arm");
  m.def("sve_bytes", &octavo::sve_bytes, "Bytes of an SVE vector; 0: this processor has none.");
  m.def("features_of", &octavo::features_of, py::arg("hwcap"), py::arg("hwcap2"), py::arg("sve_bytes"),
        "Feature bits of a processor by what its kernel reports.");
}
