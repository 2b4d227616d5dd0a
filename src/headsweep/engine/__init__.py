"""The engine: requests in, tokens out. It knows no files of a run."""
