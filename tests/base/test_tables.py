"""Rows as text: nothing is lost, and no line is longer than the terminal is wide."""

import contextlib
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import queuemodel as qm
from queuemodel import example_profile
from queuemodel.base import results

WORDS = st.text("abcdefgh", min_size=1, max_size=9)
NAMES = st.lists(WORDS, min_size=1, max_size=4).map("_".join)
VALUES = {
    "text": st.lists(WORDS, min_size=1, max_size=12).map(" ".join),
    "number": st.floats(-1e9, 1e9).map(lambda x: float(f"{x:.4g}")),
    "count": st.integers(0, 10**6),
}


@st.composite
def tables(draw):
    columns = draw(st.dictionaries(NAMES, st.sampled_from(sorted(VALUES)), min_size=1, max_size=12))
    return [{name: draw(VALUES[kind]) for name, kind in columns.items()} for _ in range(draw(st.integers(1, 4)))]


@settings(max_examples=30)
@given(tables(), st.integers(40, 200))
def test_tables_fit_their_width(rows, width):
    text, wide = results.text_table(rows, width=width), results.text_table(rows)
    assert max(map(len, text.splitlines())) <= width
    shown = set(text.split())
    for name, value in (pair for row in rows for pair in row.items()):
        words = f"{value:.6g}" if isinstance(value, float) else str(value)
        assert {*words.split(), *name.split("_")} <= shown
    assert results.text_table(rows, width=max(map(len, wide.splitlines()))) == wide


@pytest.mark.parametrize(("second", "repeated"), [("fifo", ("0.5", "fifo")), (2.0, ("0.5",))])
def test_wide_tables_are_continued(second, repeated):
    rows = [{"load": 0.5, "policy": second} | {f"figure_{k}": k + 0.25 for k in range(9)}]
    blocks = results.text_table(rows, width=40).split("\n\n")
    assert len(blocks) > 1
    assert {tuple(block.splitlines()[-1].split()[: len(repeated)]) for block in blocks} == {repeated}
    assert all(len({*block.splitlines()[-1].split()} - {*repeated}) > 0 for block in blocks)


def test_long_words_are_broken():
    text = "GreedyGain(floor=0.9,power=1.25,interval=300)"
    rows = [{"policy": text, "load": 0.5, "mean_response_time": 12.0}, {"policy": "x", "load": 0.5}]
    lines = results.text_table(rows, width=40).splitlines()[-3:]
    assert "".join(line.split()[0] for line in lines[:2]) == text


@pytest.mark.parametrize("terminal", [True, False])
def test_results_fit_a_terminal(terminal, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with contextlib.redirect_stdout(io.StringIO()) as out:
        monkeypatch.setattr(out, "isatty", lambda: terminal)
        print(qm.fit(example_profile()).throughput([1, 2]))
    assert (max(map(len, out.getvalue().splitlines())) <= 80) == terminal
