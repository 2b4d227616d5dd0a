"""A process that is killed in the middle of its work."""

import os
import signal
import warnings
from collections.abc import Callable
from typing import Any


def killed_at(step: int, work: Callable[[Callable[[], None]], Any]) -> None:
    """Do work in a copy of this process, which is killed when it counts to a step.

    Args:
        step: from 1.
        work: takes what counts; has to reach the step.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which do nothing here
        child = os.fork()
    if child == 0:
        steps = 0

        def count() -> None:
            nonlocal steps
            steps += 1
            if steps == step:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            work(count)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
