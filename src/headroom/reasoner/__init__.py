"""The embedded reasoner: a small language model trained here, so that nothing is downloaded."""
