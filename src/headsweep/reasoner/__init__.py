"""The embedded reasoner: a small language model that ships with the package."""
