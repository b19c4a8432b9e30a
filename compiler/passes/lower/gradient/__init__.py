"""Gradients: backward pass, loss scale, running averages and optimizer updates as nodes of the training step."""
