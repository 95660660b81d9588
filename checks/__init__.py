"""The checks: one module each, found by their file names."""
