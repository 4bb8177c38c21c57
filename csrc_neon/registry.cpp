// The Arm kernels as data.
#include "exec/registry_rows.h"
