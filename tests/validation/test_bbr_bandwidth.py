"""How far two ranks' bandwidth is from that of more, under BBR: the table has what the series show."""

import tomllib
from pathlib import Path

import numpy as np
import pytest

import queuemodel
from validation.bbr_bandwidth import error, factors


@pytest.mark.slow
def test_bbr_table_has_the_series():
    table = tomllib.loads((Path(queuemodel.__file__).parent / "models" / "rounds" / "constants.toml").read_text())
    found = factors()
    assert len(found) >= 6
    assert error(list(found.values())) == pytest.approx(table["base"]["unsteady"]["value"], rel=0.03)


def test_few_series_leave_more_open():
    """Of many the error is their root mean square."""
    rng = np.random.default_rng(1)
    many, few = ([np.full(3, x) for x in 0.05 * rng.choice([-1, 1], n)] for n in (2000, 3))
    assert error(many) == pytest.approx(0.05, rel=0.01)
    assert error(few) > 0.075
