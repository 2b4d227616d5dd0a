"""Labelled texts, as those of GLUE and SQuAD: read, or generated, and divided."""
