"""How much of the time no tensor operator runs."""

import time
from collections.abc import Callable

from torch.profiler import ProfilerActivity, profile


def idle_share(call: Callable[[], object]) -> float:
    """Return the share of a call's wall time outside every operator that torch's profiler sees.

    The profiler's own time counts on both sides; it is about a microsecond an operator.
    """
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        begin = time.perf_counter()
        call()
        seconds = time.perf_counter() - begin
    intervals = sorted((e.time_range.start, e.time_range.end) for e in profiler.events())
    busy = reached = 0.0
    for start, end in intervals:
        if end > reached:
            busy += end - max(start, reached)
            reached = end
    return 1 - busy / 1e6 / seconds
