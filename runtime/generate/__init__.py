"""Generation: a model of token ids writes text, a token at a time."""
