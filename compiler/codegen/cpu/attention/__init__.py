"""Attention on the CPU, in tiles of queries and keys."""
