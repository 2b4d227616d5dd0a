"""Would effects be found? They are planted, and a run that does not know them looks for them."""
