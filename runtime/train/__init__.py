"""``dslc train``: configuration, data, the loop, checkpoints, the log and the user's output. Import the modules."""
