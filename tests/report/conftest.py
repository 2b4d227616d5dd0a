import os
import subprocess
from contextlib import chdir
from functools import cache

import chromium
import pytest

import simulation
from headroom import paths
from headroom.report.page import write_report

GONE = {
    "whole": (),
    "sweep": ("selectors", "compressions", "frontiers"),
    "compression": ("selectors", "sweeps", "comparisons", "frontiers"),
}
"""What each kind of run has not."""


@pytest.fixture(scope="session")
def pages(tmp_path_factory):
    """Return what makes the page of a kind of run, each once a session."""

    @cache
    def page(kind):
        folder = tmp_path_factory.mktemp(kind)
        config = simulation.whole().model_copy(update={section: {} for section in GONE[kind]})
        with chdir(folder):
            simulation.fill(config)
            simulation.write(config)
            write_report(config)
        return folder / paths.REPORT.format(run=config.run), config

    return page


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    if not chromium.BINARY:
        pytest.skip("no Chromium is installed")
    to_browser, from_browser = os.pipe(), os.pipe()
    command = [chromium.BINARY, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    command += ["--disable-background-networking", "--no-first-run", "--remote-debugging-pipe"]
    command += [f"--user-data-dir={tmp_path_factory.mktemp('profile')}", "about:blank"]
    # Chromium reads commands on descriptor 3 and answers on 4.
    redirect = f'exec "$@" 3<&{to_browser[0]} 4>&{from_browser[1]}'
    ends = (to_browser[0], from_browser[1])
    process = subprocess.Popen(
        ["bash", "-c", redirect, "bash", *command], pass_fds=ends, stderr=subprocess.DEVNULL
    )
    for end in ends:
        os.close(end)
    with os.fdopen(to_browser[1], "wb") as writer, os.fdopen(from_browser[0], "rb") as reader:
        yield chromium.Page(writer, reader)
        process.terminate()
        process.wait(timeout=300)
