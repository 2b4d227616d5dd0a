"""The command line: the commands that people type, and `job` with the workflow's commands."""
