"""Files dated in the future are brought to the present, and nothing else changes."""

import os
import time
from pathlib import Path

from headroom.planning.session import bring_to_present

HOUR = 3_600_000_000_000


def test_files_dated_in_the_future_come_to_the_present_in_their_order(tmp_path: Path) -> None:
    begin = time.time_ns()
    ages = {"past": -HOUR, "a/input": HOUR, "next": HOUR + 1}
    ages |= {"a/b/output": 2 * HOUR, "beside": 2 * HOUR}
    for name, age in ages.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
        os.utime(file, ns=(begin, begin + age))
    os.link(tmp_path / "a/b/output", tmp_path / "second name")
    (tmp_path / "dangling").symlink_to("nowhere")

    assert bring_to_present(tmp_path) == 5

    modified = {file.name: file.lstat().st_mtime_ns for file in tmp_path.rglob("*")}
    assert modified["past"] == begin - HOUR
    assert modified["input"] < modified["next"] < modified["output"]
    assert modified["output"] == modified["beside"] == modified["second name"]
    assert begin - 1_000_000 < modified["input"] <= modified["output"] <= time.time_ns()
    assert bring_to_present(tmp_path) == 0
