"""AMD's GPUs through HIP."""
