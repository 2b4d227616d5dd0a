"""What a run shows of compression: tables beside the paper's, findings, claims."""
