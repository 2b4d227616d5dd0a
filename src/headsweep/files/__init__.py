"""Files of a run and of the store: their paths and columns, written whole, read with checksums."""
