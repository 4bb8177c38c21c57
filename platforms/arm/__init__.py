"""The Arm platform."""
