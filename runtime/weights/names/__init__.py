"""Maps from the names of tensors in a file to those of a model: patterns, rules, and what they do to a tensor."""
