"""`python -m headsweep` is `headsweep`."""

from headsweep.cli import main

raise SystemExit(main())
