"""GPUs: programs of our own kernels, the driver behind them, and torch_base/, the op contract on the user's torch."""
