"""What is let in at the boundary, to the last number; files that are read and written whole; results as rows."""

import contextlib
import gzip
import io
import os
import re
import stat
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuemodel import DataError, FitError, ModelError, example_profile, fit
from queuemodel.base import checks, files, results

NEXT = np.nextafter
NUMBERS = ["1", b"1", True, None, 1j, [1], float("nan"), float("inf"), 10**400, -1e-300, -1]
INSIDE = {
    "require_number": [(0, {}), (1e9, {}), (9e-16, {}), (1e-15, {"positive": True}), (10, {"largest": 10}),
                       (np.float64(2.5), {}), (Fraction(1, 2), {}), (-0.0, {})],
    "require_count": [(1, {}), (0, {"least": 0}), (10**6, {}), (np.int64(10**6), {}), (7, {"least": 7, "most": 7})],
    "require_seed": [(0, {}), (2**64 - 1, {})],
    "require_share": [(0, {}), (1, {}), (0.25, {"open_ended": True}), (NEXT(1.0, 0), {"open_ended": True})],
    "require_choice": [("b", {"choices": ["a", "b"]}), (2, {"choices": (1, 2)})],
    "require_name": [("x" * 200, {}), ("é 1", {})],
}  # fmt: skip
OUTSIDE = {
    "require_number": [*((bad, {}) for bad in NUMBERS), (NEXT(1e9, 2e9), {}), (0, {"positive": True}),
                       (9e-16, {"positive": True}), (NEXT(10.0, 11), {"largest": 10}), (np.float64("nan"), {})],
    "require_count": [*((bad, {}) for bad in NUMBERS), (0, {}), (2.0, {}), (10**6 + 1, {}), (6, {"least": 7}),
                      (np.int64(8), {"most": 7}), (10**5000, {})],
    "require_seed": [(-1, {}), (2**64, {}), (1.0, {}), (True, {})],
    "require_share": [*((bad, {}) for bad in NUMBERS), (NEXT(1.0, 2), {}), (0, {"open_ended": True}),
                      (1, {"open_ended": True})],
    "require_choice": [("B", {"choices": ["a", "b"]}), (1.0, {"choices": (1, 2)}), (True, {"choices": (1, 2)})],
    "require_name": [("x" * 201, {}), ("", {}), ("a\nb", {}), (5, {}), (None, {})],
}  # fmt: skip


@pytest.mark.parametrize("name", INSIDE)
def test_checks_of_values_and_limits(name):
    require = getattr(checks, name)
    kind = {"require_number": float, "require_share": float, "require_count": int, "require_seed": int}
    for value, limits in INSIDE[name]:
        found = require(value, "it", **limits)
        assert (found, type(found)) == (value, kind.get(name, type(value)))
    for value, limits in OUTSIDE[name]:
        error = {} if name in ("require_seed", "require_name") else {"error": FitError}
        with pytest.raises(error.get("error", ModelError), match=r"^it(: name)? must be ") as caught:
            require(value, "it", **limits, **error)
        assert len(str(caught.value)) < 300


@pytest.mark.parametrize(("value", "known", "called", "meant"), [
    ("async", ["sync", "async-ps"], {}, "async-ps"), ("sy", ["async", "sync-ps", "sy-nc"], {}, "sy-nc"),
    ("ps sync", ["sync", "bounded-sync-ps"], {}, "bounded-sync-ps"), ("b", ["abc", "bcd"], {}, None),
    ("Horovd", ["horovod", "ddp"], {}, "horovod"), ("hxrxvxd", ["horovod"], {}, None), ("", ["a"], {}, None),
    ("stale", ["k-sync", "bounded"], {"staleness": "bounded"}, "bounded"), ("3", [3, 30], {}, "3"),
])  # fmt: skip
def test_suggestions_for_misspelt_names(value, known, called, meant):
    said = f"; did you mean {meant!r}?" if meant else ""
    assert checks.nearest(value, known, called=called) == said
    assert checks.nearest("zero", ["ps"], called={"zero": "not modelled"}) == "; not modelled"


def test_short_lines_and_distinct_keys():
    with pytest.raises(AssertionError):  # of any test in which an error has two lines
        raise ModelError("two\nlines")
    assert [len(checks.one_line(" a\n" * n)) for n in (150, 151)] == [299, 300]
    assert checks.one_line("x" * 301) == "x" * 297 + "..."
    checks.require_distinct_keys('{"a": {"a": 1%s}, "b": [{"a": 2}]}' % ("0" * 5000))
    for text in ('{"a": 1, "b": 2, "a": 1}', '[{"b": {"c": 1, "c": 2}}]'):
        with pytest.raises(DataError, match=r"key '[ac]' stands twice"):
            checks.require_distinct_keys(text)


def test_names_of_outputs(tmp_path):
    (tmp_path / "folder.json").mkdir()
    for name in ("a.json", "A.JSON.gz", "a", "stdout"):
        checks.require_writable(tmp_path / name, suffixes=checks.JSON)
    checks.require_writable(None, suffixes=(".png",))
    for name, suffixes in (("a.csv", checks.JSON), ("json", (".json",)), ("a.json", (".png", ".svg")), ("", ()),
                           ("folder.json", checks.JSON), ("no/a.json", checks.JSON)):  # fmt: skip
        with pytest.raises(DataError):
            checks.require_writable(tmp_path / name if name else "", suffixes=suffixes)
    assert [path.name for path in tmp_path.iterdir()] == ["folder.json"]


def test_files_are_read_and_written_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MOST_UNPACKED", 10)
    path, packed = tmp_path / "a", tmp_path / "a.gz"
    for content in (b"0123456789", b"0123456789+", b"\xef\xbb\xbf7 bytes"):
        path.write_bytes(content)
        files.write_atomically(packed, content)
        assert gzip.decompress(packed.read_bytes()) == content
        assert files.read_bytes(path) == content.removeprefix(b"\xef\xbb\xbf")
        if len(content) <= 10:
            assert files.read_bytes(packed) == files.read_bytes(path)
        else:
            with pytest.raises(DataError, match="more than 10 bytes"):
                files.read_bytes(packed)
    path.write_bytes(b" \n")
    for bad, said in (
        (path, "empty"),
        (tmp_path, "cannot be read"),
        (tmp_path / "no", "No such file"),
        ("a\0", "null"),
    ):
        with pytest.raises(DataError, match=said):
            files.read_bytes(bad)
    before = os.umask(0o027)
    files.write_atomically(tmp_path / "new", "é\n")
    os.umask(before)
    path.chmod(0o604)
    (tmp_path / "link").symlink_to(path)
    files.write_json(tmp_path / "link", "{}")
    files.write_json(None, "{}")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("new", "a")]
    assert (modes, path.read_bytes(), (tmp_path / "link").is_symlink()) == ([0o640, 0o604], b"{}\n", True)
    assert (tmp_path / "new").read_bytes() == "é\n".encode()
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    files.write_atomically(tmp_path / "pipe", b"through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    for bad in (tmp_path, tmp_path / "no" / "file"):
        with pytest.raises(DataError, match="cannot be written"):
            files.write_atomically(bad, b"x")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a", "a.gz", "link", "new", "pipe"]


class Two(results.Result):
    """Two tables under a long caption."""

    _digits = 2

    def to_rows(self):
        return results.rows_of({"load_at": np.array([1, 20]), "time": np.array([[0.1234], [1234567.0]])})

    def caption(self):
        return "a <b> of " + "words " * 6

    def _tables(self):
        return [self.to_rows(), [{"time": None, "name": "x y"}, {"time": float("nan"), "name": "z"}]]


def test_result_as_text_html_json_frame(tmp_path):
    two = Two()
    assert two.to_rows() == [{"load_at": 1, "time": 0.1234}, {"load_at": 20, "time": 1234567.0}]
    assert [results.finite(value) for value in (1.5, float("nan"), -float("inf"), "x", 3)] == [1.5, None, None, "x", 3]
    assert two.to_json(tmp_path / "a.json") + "\n" == (tmp_path / "a.json").read_text()
    assert two.to_dict() == {"rows": two.to_rows()}
    assert two.to_frame()["time"].tolist() == [0.1234, 1234567.0]
    tables = ["  load at     time", "---------  -------", "        1  0.12", "       20  1.2e+06",
              "time    name", "------  ------", "-       x y", "-       z"]  # fmt: skip
    assert two.to_text().splitlines() == [two.caption(), *tables]
    assert two.to_text(24).splitlines() == ["a <b> of words words", "words words words words", *tables]
    assert repr(two) == two.to_text()
    assert re.findall(r"<p>.*?</p>|<t[dh]\b[^>]*>", two._repr_html_()) == [
        "<p>a &lt;b&gt; of words words words words words words </p>",
        *[f'<t{kind} style="text-align: right;">' for kind in "hhdddd"], *["<th>"] * 2, *["<td>"] * 4,
    ]  # fmt: skip


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
        print(fit(example_profile()).throughput([1, 2]))
    assert (max(map(len, out.getvalue().splitlines())) <= 80) == terminal
