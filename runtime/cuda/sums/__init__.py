"""Sums over the shards of a training step in device memory, of one GPU or of several."""
