"""GPUs: programs of our own kernels over device memory, and the driver behind them."""
