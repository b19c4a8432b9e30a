"""Sweeps: many trainings of one configuration with other values, concurrently and resumable."""
