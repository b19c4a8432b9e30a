"""Kernels that copy: concat, slices, gather by computed indices, pick and put_rows; a file for each."""
