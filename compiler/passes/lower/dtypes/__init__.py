"""Dtypes: which values are f32, bf16 or f16, and where they are converted."""
