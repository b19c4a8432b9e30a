"""Destinations of loss and metrics: TensorBoard, W&B, trackio, MLflow, and those of installed packages."""
