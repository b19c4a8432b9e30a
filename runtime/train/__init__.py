"""``dslc train``: configuration, data, the loop, checkpoints, the log and what a user sees. Import the modules."""
