// The x86 module.
#include "bind/bind.h"

#ifndef OCTAVO_MODULE
#define OCTAVO_MODULE _avx
#endif

PYBIND11_MODULE(OCTAVO_MODULE, m) { octavo::fill_module(m, "x86"); }
