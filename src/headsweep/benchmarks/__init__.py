"""Question sets: from the hub, from a local file, or generated here."""
