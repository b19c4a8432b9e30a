"""Tables: named columns of raw values, read by row numbers from CSV, JSON lines, Parquet and Arrow files."""
