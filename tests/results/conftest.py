import pytest

import simulated_studies
import simulation
from headsweep.results.compression_tables import tables
from headsweep.results.published import conditions


@pytest.fixture(scope="session")
def made():
    """Return the tables of two solvers on Math23k, the second larger and with one seed."""
    least = simulated_studies.study(
        solver="big", arms=["baseline", "full"], variations={}, seeds=[3], int8=[]
    )
    second = simulated_studies.results(least, name="second", examples=53, papers_data="Math23k")
    for history in second.histories["baseline"].values():
        history["parameters"] *= 3
    first = simulated_studies.results(papers_data="Math23k")
    return tables([first, second], conditions(simulation.PUBLISHED))
