// The kernels of this module as data, from kernels.inc.
#pragma once
#include <cstddef>

#include "exec/kernel.h"

namespace octavo {

const KernelRow* kernel_rows(size_t* count);

}  // namespace octavo
