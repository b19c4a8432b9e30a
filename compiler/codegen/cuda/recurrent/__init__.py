"""A loop at run time as one resident kernel."""
