"""`python -m headsweep` is `headsweep`."""

from headsweep.cli.main import main

raise SystemExit(main())
