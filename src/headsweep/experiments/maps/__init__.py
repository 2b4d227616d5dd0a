"""A map of every head: how likely known texts are to the model without each of its heads."""
