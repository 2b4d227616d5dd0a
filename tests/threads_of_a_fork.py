"""Forks, in each of which several threads compute for the first time at once."""

import os
import threading

import torch

THREADS, FORKS = 8, 20


def main():
    """Return how many of the forks had a thread that failed."""
    return sum(_forked() for _ in range(FORKS))


def _forked():
    child = os.fork()
    if not child:
        os._exit(_compute())
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0


def _compute():
    failed = []
    together = threading.Barrier(THREADS)

    def add():
        together.wait()
        try:
            torch.zeros(2000, 200).add_(1)  # as large as torch parts among threads
        except RuntimeError as error:
            failed.append(error)

    threads = [threading.Thread(target=add) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return bool(failed)
