"""Published models: their weights' names and shapes, and their predictions, made by torchvision and transformers."""
