"""The papers' tables and figures in the papers' own form, from a run or from what they print."""
