"""The commands about runs: their list, comparison, publication and sweeps."""
