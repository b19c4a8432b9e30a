"""Loops at run time: moves work out of their bodies, and gives the bodies forms that kernels compute well."""
