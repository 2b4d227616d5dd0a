"""The report: one self-contained page with what a run found and how."""
