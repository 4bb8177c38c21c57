// copy_blocks at neon; body in copy_blocks.inl.h.
#include "attention/copy_blocks.inl.h"
