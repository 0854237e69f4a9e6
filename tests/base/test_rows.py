"""Tables as text: read as they were written, whatever the line ends; what is wrong is one line with its place."""

import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuemodel import DataError
from queuemodel.base import files


def rows(text, *, required=("name", "speed"), **options):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.csv"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return list(files.read_rows(path, required=required, **options))


def refusal(text, ask=lambda row: None, **options):
    with pytest.raises(DataError, match=r"t\.csv: line [0-9]+: |t\.csv: (is not UTF-8|no rows)") as caught:
        [ask(row) for row in rows(text, **options)]
    message = str(caught.value)
    assert len(message) < 700
    return message


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_ends_and_byte_order_marks(end, mark):
    first, second = rows(mark + end.join(["name, speed", "a,1.5", "", '"b, c", 2e1 ', ""]))
    assert (first.text("name"), first.number("speed"), first.line) == ("a", 1.5, 2)
    assert (second.text("name"), second.count("speed"), second.line) == ("b, c", 20, 4)


def test_what_spreadsheets_save():
    assert [row.line for row in rows(",\nname,speed\n,\na,1\n , \n\n")] == [4]
    assert "no rows below the header" in refusal("name,speed\n,\n")
    assert rows('name,speed\n"a", "1"\n')[0].number("speed") == 1  # blanks before quotes
    assert rows("a\t4.0\n", header=("name", "speed"), delimiter="\t")[0].count("speed") == 4
    wide = [f"c{n}" for n in range(1000)]
    assert rows(",".join(wide) + "\n" + ",".join(["1"] * 1000), required=wide)[0].number("c999") == 1
    for delimiter, said in ((";", "semicolons"), ("\t", "tabs")):  # in another language
        text = f"name{delimiter}speed\na{delimiter}1,5"
        assert f"line 1: columns must be separated by commas, got {said}; save it with commas" in refusal(text)
        assert rows(f"name,speed{delimiter}\na,1", others=True, required=("name",))[0].text("name") == "a"


GOOD = {
    files.parse_bandwidth: {
        "10Gbit/s": 1.25e9, "1.25 GB/s": 1.25e9, "60 Mbit/s": 7.5e6, 1000: 1000.0, 0.25: 0.25,
        **dict.fromkeys(["10gbps", "10 Gbps", "10Gb", "10gb/s", "10 Gbit", "10GbE", "10GBE", "10gige", "10 gigabit/s",
                         "10 Gbits per second", "1_0Gbit/sec", "10000 megabit/s", " 1e1Gb/s "], 1.25e9),
        "10GBps": 1e10, "10 gigabytes/s": 1e10, "1.5 kBytes/second": 1500.0,
    },
    files.parse_size: {"25 Mbytes": 25e6, "25 megabytes": 25e6, "1e6 byte": 1e6, 1e18: 1e18, "1e18B": 1e18, 2: 2.0},
    files.parse_duration: {
        "90min": 5400.0, 1.5: 1.5, 1e-15: 1e-15, "90 Minutes": 5400.0, "2hrs": 7200.0, "3 secs": 3.0, "1h30m": 5400.0,
        "1h 30min": 5400.0, "2m30s": 150.0, "12:00:00": 43200.0, "1 week": 604800.0, "5usec": 5e-6,
    },
    files.parse_latency: {"15 us": 15e-6, "3ms": 3e-3},
}  # fmt: skip
NO_UNITS = {
    files.parse_bandwidth: ["10 meters", "fast", "-1Gbit/s", "0", "nan", "1e999", "", "1,000Mbit/s"],
    files.parse_size: ["3 apples", "10Gbit"],
    files.parse_duration: ["5 fortnights", "-3h", "1:30", "1h30", "1h3x", "1,5h", "0h0m", "0s", "4 months", "1.1.1s"],
    files.parse_latency: [float("inf")],
}
MEANT = {  # what a refusal suggests, of units and of numbers without one
    files.parse_bandwidth: {"25G": "25Gbit/s or 25GB/s", "10 MB": "10Mbit/s or 10MB/s", "10": "10Gbit/s or 10MB/s",
                            "10GBPS": "10Gbit/s or 10GB/s"},
    files.parse_size: {"98mb": "98MB", "98M": "98MB", "1kb": "1kB", "2G": "2GB", "2 KB/s": "2kB", "25": "25MB or 25B"},
    files.parse_duration: {"3m": "3min", "3M": "3min", "3": "3h, 3min or 3s", " 1.5 ": "1.5h, 1.5min or 1.5s"},
    files.parse_latency: {"3m": "3ms", "50": "50us or 50ms"},
}  # fmt: skip
NUMBERS = {
    files.number_in: {
        "8": 8, " 1e8 ": 10**8, "100M": 10**8, "100 k": 10**5, "1B": 10**9, "1.1G": 11 * 10**8, "8.0": 8, "2.5": 2.5,
        "1_000": 1000, f"{2**64}": 2**64, "2,5": "2,5", "1,000": "1,000", "5m": "5m", "": ""},
    files.count_in: {"100,000,000": 10**8, "1,000": 1000, "0,125": "0,125", "1,00": "1,00", "1234,567": "1234,567"},
    files.share_in: {"90%": 0.9, "90 %": 0.9, "0.9": 0.9, "90": 90, "x%": "x%"},
}  # fmt: skip


def test_powers_and_units_multiply():
    powers = {"": 1, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
    for prefix, scale in powers.items():
        assert files.parse_size(f" 3 {prefix}B ") == pytest.approx(3 * scale)
        for unit, size in {"bit": 1 / 8, "bits": 1 / 8, "b": 1 / 8, "B": 1}.items():
            for second in ("/s", " / s", "ps"):
                assert files.parse_bandwidth(f"+7.5{prefix}{unit}{second}") == pytest.approx(7.5 * scale * size)
    seconds = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600, "d": 86400}
    for unit, second in seconds.items():
        assert files.parse_duration(f"1.5e1{unit}") == files.parse_latency(f"15 {unit}") == pytest.approx(15 * second)
    said = {1.25e8: "1 Gbit/s", 1.24e8: "992 Mbit/s", 125e3: "1 Mbit/s", 1e3: "8 kbit/s", 124.0: "992 bit/s"}
    assert {rate: files.readable_rate(rate) for rate in said} == said


@pytest.mark.parametrize("parse", GOOD)
def test_written_units_are_parsed(parse):
    for text, value in GOOD[parse].items():
        assert parse(text) == pytest.approx(value, rel=1e-12)
    for text in NO_UNITS[parse]:
        with pytest.raises(DataError, match="like"):
            parse(text)
    for text, meant in MEANT[parse].items():
        with pytest.raises(DataError, match=rf"'{text}'(: unknown unit| has no unit); write {meant}$"):
            parse(text)
        assert all(parse(reading) > 0 for reading in re.split(", | or ", meant))
    for large in (1e300, 1e-20):
        with pytest.raises(DataError, match="must be 1e-15 to"):
            parse(large)


@pytest.mark.parametrize("read", NUMBERS)
def test_numbers_as_people_write_them(read):
    for text, value in NUMBERS[read].items():
        assert (read(text), type(read(text))) == (value, type(value))


@given(st.floats(0, 1e9), st.integers(1, 1_000_000))
def test_every_digit_is_kept(number, count):
    (row,) = rows(f"name,speed\n{count},{number!r}\n")
    assert row.number("speed") == number
    assert row.count("name") == count


def test_missing_values_have_defaults():
    (without,), (empty,) = rows("name,speed\na,\n"), rows("name,speed,share\na,1, \n", optional=("share",))
    assert (without.number("speed", 7.0), without.count("speed", 3), without.text("speed", "x")) == (7.0, 3, "x")
    assert (without.given("speed"), without.given("name"), without.quantity("speed", float)) == (False, True, None)
    (at,) = rows(f"name,speed\n{'x' * 200},1\n")
    assert (at.text("name"), at.share("speed"), at.count("speed", most=1), at.count("speed", 9)) == ("x" * 200, 1, 1, 1)
    assert (at.number("speed", 7.0, largest=1), at.quantity("speed", float, largest=1)) == (1, 1)
    assert (empty.share("share", 0.5), empty.quantity("speed", lambda text: 8 * float(text))) == (0.5, 8.0)


def test_columns_of_other_tools():
    text = "name,speed,gpu_mem\na,1,2\n"
    assert rows(text, others=True)[0].number("speed") == 1
    assert rows("name,speed,speeds\na,1,2\n", others=True)[0].number("speed") == 1  # alike, but nothing is absent
    assert "unknown column 'gpu_mem'; the known ones are name, speed" in refusal(text)
    for others in (False, True):
        said = refusal("name,speed,gpu_mum\na,1,2\n", optional=("gpu_mem",), others=others)
        assert "unknown column 'gpu_mum'; did you mean 'gpu_mem'?" in said


@pytest.mark.parametrize(("text", "message"), [
    ("name,speed\n", "no rows below the header"), (",".join(["name"] * 200_000), "at most 1000 columns"),
    ("name\n", "line 1: column 'speed' is missing; the columns are name"),
    ("name,sped\na,1\n", "line 1: unknown column 'sped'; did you mean 'speed'?"),
    ("name,speed,name\na,1,b\n", "line 1: column 'name' stands twice"),
    ("name,speed\na,1\n\nb\n", "line 4: a row must have 2 values (name, speed), got 1"),
    ('name,speed\na,"1\n', "line 2: unexpected end of data"), (b"name,speed\na,\xff\n", "UTF-8 text, see byte 13"),
    ("name,speed\n" + "x" * 200_000 + ",1\n", "line 2: field larger than field limit"),
], ids=range(9))  # fmt: skip
def test_tables_that_are_none(text, message):
    assert message in refusal(text)


@pytest.mark.parametrize("bad", ["", "fast", "nan", "inf", "-1", "1e400", "1_000", "\u0661", "0x10", "1,5", "1 2"])
@pytest.mark.parametrize("kind", ["number", "count"])
def test_what_is_no_number(kind, bad):
    assert "line 3: speed must be" in refusal(f'name,speed\nb,1\na,"{bad}"\n', lambda row: getattr(row, kind)("speed"))


@pytest.mark.parametrize(("ask", "value", "message"), [
    (lambda row: row.number("speed", positive=True), "0", "speed must be finite and > 0, got 0.0"),
    (lambda row: row.number("speed"), "1" * 5000, "speed must be at most 200 characters, got 5000"),
    (lambda row: row.count("speed", 3, least=2), "1", "speed must be a whole number of at least 2, got 1"),
    (lambda row: row.quantity("speed", files.parse_duration, largest=60), "61s", "speed must be at most 60"),
    (lambda row: row.quantity("speed", files.parse_duration), "61", "line 2: speed: duration '61' has no unit"),
    (lambda row: row.share("speed", 0.5), "1.01", "speed must be between 0 and 1"),
    (lambda row: row.count("speed"), "1.5", "speed must be a whole number of at least 1, got '1.5'"),
    (lambda row: row.text("speed"), '"a\nb"', "speed must be printable text, got 'a\\nb'"),
    (lambda row: row.text("speed"), "x" * 201, "speed must be at most 200 characters, got 201"),
])  # fmt: skip
def test_values_out_of_range(ask, value, message):
    assert message in refusal(f"name,speed\na,{value}\n", ask)
