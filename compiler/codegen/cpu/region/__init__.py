"""Regions on the CPU: ``schedule.py`` chooses the axis of the vectors and the tasks, ``kernel.py`` writes the code."""
