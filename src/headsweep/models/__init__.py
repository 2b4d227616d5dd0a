"""Models: where they come from, where their attention heads are, and how heads are masked."""
