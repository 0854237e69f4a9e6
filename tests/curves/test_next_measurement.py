"""What to measure next: about twice the workers that saturate the servers, as far as that is a cheap run."""

import math

import pytest

import queuemodel as qm
from queuemodel import example_profile

PROFILE = example_profile("alexnet-60")
POINTS = [qm.Measurement(workers=n, steps_per_second=x) for n, x in ((1, 10.0), (2, 19.0))]


def curve_to(most, **changes):
    return qm.fit(PROFILE).what_if(**changes).throughput(range(1, most + 1))


@pytest.mark.parametrize(
    ("most", "workers", "why"),
    [(32, 5, "twice"), (9, 5, "twice"), (8, 4, "half"), (7, 4, "half"), (4, 3, "fewer"), (3, 3, "fewer")],
)
def test_it_is_about_twice_the_saturation_or_half_of_those_asked_about(most, workers, why):
    assert math.ceil(2 * curve_to(1).saturation_workers) == 5
    found = qm.next_measurement(curve_to(most))
    assert found.workers == workers
    assert why in found.reason
    assert curve_to(most).caption().endswith(f"; {found.caption()}")


def test_what_was_measured_is_not_recommended_again():
    measured = [qm.Measurement(workers=5, steps_per_second=1.85)]
    again = qm.predict(PROFILE, workers=[16], throughputs=measured, method="mva")
    for curve in (again, curve_to(2), curve_to(16, bandwidth=1e9)):
        assert qm.next_measurement(curve).workers is None
        assert "measure next" not in curve.caption()
    more = qm.fit([*POINTS, qm.Measurement(workers=4, steps_per_second=36.0)]).throughput([16])
    assert qm.next_measurement(more).workers == 8  # saturation is far: half of those asked about


@pytest.mark.parametrize(("name", "strategy"), [("ddp-alexnet-40", None), ("alexnet-60", "sync-ps")])
def test_other_ways_of_training_are_refused(name, strategy):
    curve = qm.fit(example_profile(name), strategy=strategy).throughput([8])
    with pytest.raises(qm.ModelError, match="asynchronous workers on parameter servers"):
        qm.next_measurement(curve)
    assert "measure next" not in curve.caption()
