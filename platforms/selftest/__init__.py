"""Start-up self-test: tiny fixed inputs through the chosen kernels, their bits compared with the reference's."""
