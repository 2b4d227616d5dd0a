"""What a run shows: the report, figures, and the papers' exhibits as they print them."""
