"""Shards: tar files whose members with one base name are one sample, as WebDataset writes them."""
