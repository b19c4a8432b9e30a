"""Ops of installed packages: how they are found, and what protects the compiler from faults in their code."""
