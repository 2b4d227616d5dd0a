import pytest

from headsweep.grading import pool


@pytest.fixture(autouse=True, scope="module")
def ended():
    yield
    pool.close_kept()
