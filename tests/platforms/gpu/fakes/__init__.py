"""Drivers of GPUs made of host memory, in C, and stand-ins for the vendors' Python bindings."""
