"""Heads removed from a decoder in rounds; after each, the rest learns from the unpruned model."""
