"""The notebooks run from the first cell to the last, and show tables and plots with real numbers."""

import ast
import re
import warnings
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

NOTEBOOKS = {path.stem: path for path in sorted((Path(__file__).parent.parent.parent / "notebooks").glob("*.ipynb"))}

#: What each predicts, the largest error that it may show (%), and its question of capacity.
CLAIMS = {
    "01-from-profile-to-decision": ({1, 2, 4, 8}, 15, "smallest within 3 h"),
    "02-data-parallel": ({1, 2, 3, 4, 6, 8}, 4, "smallest within 1 h"),
}


@pytest.fixture(scope="module")
def shown():
    """From a notebook's name to what each code cell showed, run without a complaint: source to {media type: data}."""
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")

    def run(name):
        notebook = nbformat.read(NOTEBOOKS[name], as_version=4)
        assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook.cells)  # as committed
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the kernel's own start-up is not ours
            nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
        cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
        assert not [output for cell in cells for output in cell.outputs if output.output_type in ("error", "stream")]
        found = {cell.source: dict(pair for o in cell.outputs for pair in o.get("data", {}).items()) for cell in cells}
        assert all(found.values()), [source for source, data in found.items() if not data]
        return found

    return run


def value(shown, start):
    """Of the cell that begins so."""
    (text,) = [data["text/plain"] for source, data in shown.items() if source.startswith(start)]
    return ast.literal_eval(text)


@pytest.mark.parametrize("name", CLAIMS)
def test_the_prediction_is_near_the_measurement_and_the_plan_names_workers(shown, name):
    cells = shown(name)
    workers, largest, question = CLAIMS[name]
    for source, data in cells.items():
        if source.splitlines()[-1] in ("profile", "model", "curve", "calibrated", "rounds") or "qm.plan" in source:
            assert "<table>" in data["text/html"]
        if source.endswith(".figure"):
            assert len(data["image/png"]) > 10_000
        if "qm.plan" in source:
            assert re.search(question + r"\s+\d+", data["text/plain"])
    curve = next(data for source, data in cells.items() if source.endswith(("\ncurve", "\nrounds")))
    assert "data:image/svg+xml;base64," in curve["text/html"]
    errors = {n: float(error.rstrip("%")) for n, error in value(cells, "errors").items()}
    assert errors.keys() == workers
    assert max(map(abs, errors.values())) < largest


def test_strategies_are_compared(shown):
    cells = shown("03-which-strategy")
    assert "<table>" in next(data for source, data in cells.items() if source.endswith("\nslow"))["text/html"]
    fast = value(cells, "fast =")
    assert max(fast.values()) < 1.2 * fast["sync"]
    assert sum("image/png" in data for data in cells.values()) == 2


def test_a_cluster_is_shared(shown):
    cells = shown("04-a-clusters-schedule")
    hours = value(cells, "guesses")
    assert float(hours["RankPriced"].split()[0]) < float(hours["FIFO"].split()[0])
    assert sum("image/png" in data for data in cells.values()) == 5


def test_textbook_tables_agree(shown):
    cells = shown("05-closed-and-open-networks")
    assert sum("image/png" in data for data in cells.values()) == 2
    tables = [data["text/html"] for data in cells.values() if "published" in data.get("text/html", "")]
    assert len(tables) == 5
    for table in tables:
        rows = [[float(cell) for cell in re.findall(r"<td>([^<]+)</td>", row)] for row in table.split("<tr")]
        assert all(row[1] == pytest.approx(row[0], rel=3e-3) for row in rows if len(row) > 1)


def test_traces_are_looked_into(shown):
    cells = shown("05-traces")
    rates, measured = value(cells, "rates"), value(cells, "{point")
    assert rates["tac"][0] > 1.03 * rates["tensorflow"][0]
    assert rates["tac"][2] == pytest.approx(rates["tensorflow"][2], rel=0.03)
    orders = value(cells, "def arrivals")
    assert len({tuple(sorted(order)) for order in orders}) == 1 < len({tuple(order) for order in orders})
    assert rates["tensorflow"] == pytest.approx([measured[n] for n in (1, 2, 4)], rel=0.1)
