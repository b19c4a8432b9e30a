"""Systems of linear equations: factors of matrices, and what is computed from them."""
