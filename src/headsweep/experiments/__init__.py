"""The experiments of the two papers, and maps of heads: what is done with answers and models."""
