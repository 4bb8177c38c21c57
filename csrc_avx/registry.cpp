// The x86 kernels as data.
#include "exec/registry_rows.h"
