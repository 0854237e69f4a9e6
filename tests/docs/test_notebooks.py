"""The notebooks run from the first cell to the last, and show tables and plots with real numbers."""

import re
import warnings
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

NOTEBOOKS = Path(__file__).parent.parent.parent / "notebooks"


#: What each predicts, the largest error that it may show (%), and its question of capacity.
CLAIMS = {
    "01-from-profile-to-decision": ({1, 2, 4, 8}, 15, "smallest within 3 h"),
    "02-data-parallel": ({1, 2, 3, 4, 6, 8}, 4, "smallest within 1 h"),
}


@pytest.fixture(scope="module", params=CLAIMS)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def executed(name):
    return run(name)


def run(name):
    """A notebook, run in a kernel of its own."""
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the kernel's own start-up is not ours
        nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
    return notebook


def results(notebook):
    """What each code cell showed: source to {media type: data}."""
    return {
        cell.source: {kind: data for output in cell.outputs for kind, data in output.get("data", {}).items()}
        for cell in notebook.cells
        if cell.cell_type == "code"
    }


def test_no_cell_fails_or_complains(executed):
    for cell in executed.cells:
        for output in cell.get("outputs", []):
            assert output.output_type not in ("error", "stream"), output


def test_each_result_shows_itself(executed):
    shown = results(executed)
    for source, data in shown.items():
        assert data, f"shows nothing: {source}"
        if source.splitlines()[-1] in ("profile", "model", "curve", "calibrated", "rounds") or "qm.plan" in source:
            assert "<table>" in data["text/html"]
        if source.endswith(".figure"):
            assert len(data["image/png"]) > 10_000
    assert (
        "data:image/svg+xml;base64,"
        in next(data for source, data in shown.items() if source.endswith(("\ncurve", "\nrounds")))["text/html"]
    )


def test_the_prediction_is_near_the_measurement(executed, name):
    (text,) = [data["text/plain"] for source, data in results(executed).items() if source.startswith("errors")]
    errors = {int(n): float(error) for n, error in re.findall(r"(\d+): '([-+][\d.]+)%'", text)}
    workers, largest, _ = CLAIMS[name]
    assert errors.keys() == workers
    assert max(map(abs, errors.values())) < largest


def test_the_plan_names_a_number_of_workers(executed, name):
    for source, data in results(executed).items():
        if "qm.plan" in source:
            assert re.search(CLAIMS[name][2] + r"\s+\d+", data["text/plain"])


def shown_without_complaint(name):
    """What each code cell of a notebook showed, every one something."""
    notebook = run(name)
    test_no_cell_fails_or_complains(notebook)
    shown = results(notebook)
    assert all(shown.values())
    return shown


def test_strategies_are_compared():
    shown = shown_without_complaint("03-which-strategy")
    assert "<table>" in next(data for source, data in shown.items() if source.endswith("\nslow"))["text/html"]
    (fast,) = (eval(data["text/plain"]) for source, data in shown.items() if source.startswith("fast ="))
    assert max(fast.values()) < 1.2 * fast["sync"]
    assert sum("image/png" in data for data in shown.values()) == 2


def test_a_cluster_is_shared():
    shown = shown_without_complaint("04-a-clusters-schedule")
    (hours,) = (eval(data["text/plain"]) for source, data in shown.items() if source.startswith("guesses"))
    assert float(hours["RankPriced"].split()[0]) < float(hours["FIFO"].split()[0])
    assert sum("image/png" in data for data in shown.values()) == 5


def test_traces_are_looked_into():
    shown = shown_without_complaint("05-traces")
    (rates,) = (eval(data["text/plain"]) for source, data in shown.items() if source.startswith("rates"))
    assert rates["tac"][0] > 1.03 * rates["tensorflow"][0]
    assert rates["tac"][2] == pytest.approx(rates["tensorflow"][2], rel=0.03)
    (orders,) = (eval(data["text/plain"]) for source, data in shown.items() if source.startswith("def arrivals"))
    assert len({tuple(sorted(order)) for order in orders}) == 1 < len({tuple(order) for order in orders})
    (measured,) = (eval(data["text/plain"]) for source, data in shown.items() if source.startswith("{point"))
    assert rates["tensorflow"] == pytest.approx([measured[n] for n in (1, 2, 4)], rel=0.1)


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.name)
def test_notebooks_are_committed_without_outputs(path):
    nbformat = pytest.importorskip("nbformat")
    for cell in nbformat.read(path, as_version=4).cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
