"""Files dated in the future: Snakemake removes whatever it makes from one, for being older."""

import contextlib
import os
import time
from pathlib import Path


def bring_to_present(folder: Path) -> int:
    """Date the files of a folder that are dated in the future at now; return how many there are.

    They stay in order, a microsecond apart, and those of one time stay so: what was newer than its
    input still is. Files that may not be touched are left as they are.
    """
    now = time.time_ns()
    ahead: dict[Path, int] = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            file = Path(parent, name)
            with contextlib.suppress(OSError):  # removed meanwhile
                if (modified := file.lstat().st_mtime_ns) > now:
                    ahead[file] = modified
    times = sorted(set(ahead.values()), reverse=True)
    present = {modified: now - 1000 * back for back, modified in enumerate(times)}
    for file, modified in ahead.items():
        with contextlib.suppress(OSError):
            os.utime(file, ns=(now, present[modified]), follow_symlinks=False)
    return len(ahead)
