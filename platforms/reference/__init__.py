"""The reference platform: numpy, the executable specification of every op."""
