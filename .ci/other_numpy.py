"""Run mypy with the numpy of the lock's other line: its types differ by the version of Python.

    python .ci/other_numpy.py FOLDER

FOLDER becomes an environment that holds that numpy; all else it takes from this one. Where that
numpy cannot be had, as without network, this is skipped with a word, in CI it fails.
"""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from packaging.requirements import Requirement

LOCK = Path(__file__).parents[1] / "envs/cpu.txt"
PYTHONS = ("3.11", "3.12")  # one for each line


def other_line() -> tuple[Requirement, str]:
    """Return the numpy of the lock that this Python does not install, and a Python that does."""
    for line in LOCK.read_text(encoding="utf-8").splitlines():
        if not line.startswith("numpy=="):
            continue
        numpy = Requirement(line)
        if numpy.marker is None or numpy.marker.evaluate():
            continue
        for python in PYTHONS:
            if numpy.marker.evaluate({"python_full_version": f"{python}.0"}):
                return numpy, python
    sys.exit(f"{LOCK} has no other numpy; take this step out of `make lint`")


def install(numpy: Requirement, python: str, folder: Path) -> bool:
    """Make the environment, unless it is there; return whether it could be made."""
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder)}))
    if (packages / f"numpy-{str(numpy.specifier).removeprefix('==')}.dist-info").exists():
        return True
    venv.create(folder, clear=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-compile", "--no-deps", "--only-binary", ":all:", "--python-version", python]
    command += ["--target", str(packages), f"{numpy.name}{numpy.specifier}"]
    if subprocess.run(command, check=False).returncode:
        return False
    # Behind the environment's own packages in the order of the search.
    (packages / "rest.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return True


def main() -> None:
    """Check the sources as Pythons of the other line see them."""
    folder = Path(sys.argv[1])
    numpy, python = other_line()
    if not install(numpy, python, folder):
        print(f"mypy on Python {python}: skipped, {numpy.name}{numpy.specifier} cannot be had")
        sys.exit(1 if os.environ.get("CI") else 0)
    command = [sys.executable, "-m", "mypy", "--python-version", python]
    command += ["--python-executable", str(folder / "bin" / "python")]
    sys.exit(subprocess.run(command, check=False).returncode)


if __name__ == "__main__":
    main()
