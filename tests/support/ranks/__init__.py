"""Helpers for tests of several processes that train together."""
