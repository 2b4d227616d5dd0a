"""Runs code with the package of another folder, in a fork that has all other imports done."""

import os
import runpy
import sys


def main():
    """Do `-c CODE` or `-m MODULE WORDS` of the arguments, with SOURCE first of all."""
    _, source, how, what, *words = sys.argv
    for name in [name for name in sys.modules if name.partition(".")[0] == "headsweep"]:
        del sys.modules[name]
    sys.path.insert(0, source)
    os.environ["PYTHONPATH"] = source  # for processes that it starts
    sys.argv = [what, *words]
    if how == "-c":
        exec(what, {"__name__": "__main__"})
    else:
        runpy.run_module(what, run_name="__main__", alter_sys=True)
