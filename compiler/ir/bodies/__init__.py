"""Ops whose nodes have a graph of their own."""
