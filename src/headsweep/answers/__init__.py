"""The answers that a job asks for: what is missing, who computes it, and where it is kept."""
