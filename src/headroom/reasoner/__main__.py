"""Train the shipped reasoner again: ``python -m headroom.reasoner``, or ``make reasoner``."""

import argparse
import logging
from pathlib import Path

from headroom.reasoner import shipped

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train the reasoner that ships with the package.")
    parser.add_argument("--output", type=Path, default=shipped.FOLDER, help="folder to fill")
    logging.basicConfig(level=logging.INFO, format="headroom: %(message)s")
    shipped.make(parser.parse_args().output)
