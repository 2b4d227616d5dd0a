"""What a run shows of compression: tables beside the paper's, figures, findings, claims."""
