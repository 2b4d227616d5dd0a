"""Are heads special? Families of cheap variants of one model, compared at equal tokens."""
