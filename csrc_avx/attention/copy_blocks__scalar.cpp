// copy_blocks at scalar; body in copy_blocks.inl.h.
#include "attention/copy_blocks.inl.h"
