"""From hidden states to vectors: the module list of a sentence-transformers folder, read in full and computed."""
