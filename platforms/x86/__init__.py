"""The x86 platform."""
