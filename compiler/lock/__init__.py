"""The lock: a text file that keeps how each problem of a model is best computed on a GPU."""
