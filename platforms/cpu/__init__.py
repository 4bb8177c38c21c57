"""What CPU platforms share: weights in panels, models recorded as native programs, one thread team."""
