"""Every function of the language next to PyTorch's operation: times, shares of the roof and memory, case by case."""
