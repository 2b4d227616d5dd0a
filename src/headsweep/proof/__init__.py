"""Does the instrument see? Effects are planted; a run that does not know them looks for them."""
