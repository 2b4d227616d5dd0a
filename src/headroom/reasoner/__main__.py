"""Make the shipped reasoner again: ``python -m headroom.reasoner``, or ``make reasoner``.

Weights, tokenizer, record, loss curve and recorded answers go to `shipped.FOLDER`, or to the folder
that is named.
"""

import argparse
import logging
from pathlib import Path

from headroom.reasoner import shipped


def main() -> None:
    """Train, answer the test questions, and write both down."""
    parser = argparse.ArgumentParser(description="Train the reasoner that ships with the package.")
    parser.add_argument("--output", type=Path, default=shipped.FOLDER, help="folder to fill")
    logging.basicConfig(level=logging.INFO, format="headroom: %(message)s")
    shipped.make(parser.parse_args().output)


if __name__ == "__main__":
    main()
