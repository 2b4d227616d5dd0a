"""Tables, figures and the report: everything that a run shows."""
