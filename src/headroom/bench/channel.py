"""Jobs for a worker process: one JSON object a line, in and out. Standard library only."""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

Job = dict[str, Any]


def serve(start: Callable[[Job], Callable[[Job], Job]]) -> None:
    """Answer jobs from standard input until it ends.

    The first line sets the worker up. Whatever libraries print goes to standard error. An error
    is answered in one line; the worker goes on.

    Args:
        start: takes the first job, returns the function that answers all others.
    """
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    answer: Callable[[Job], Job] | None = None
    for line in sys.stdin:
        begin = time.process_time()
        try:
            if answer is None:
                answer = start(json.loads(line))
                reply: Job = {}
            else:
                reply = answer(json.loads(line))
        except Exception as error:  # a rival that fails is a row of the table, not the end of it
            reply = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"}
        reply["cpu_seconds"] = time.process_time() - begin
        print(json.dumps(reply), file=replies, flush=True)
