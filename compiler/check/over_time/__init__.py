"""Values that pass from step to step: carries of a `scan`, and states, which last from call to call."""
