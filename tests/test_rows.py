"""Tables as text: read as they were written, whatever the line ends; what is wrong is one line with its place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuemodel.base.errors import DataError
from queuemodel.base.files import parse_bandwidth, parse_duration, parse_latency, parse_size, read_rows, readable_rate


def rows(text, *, required=("name", "speed"), **options):
    content = text.encode() if isinstance(text, str) else text
    return list(read_rows("t.csv", content=content, required=required, **options))


def refusal(text, ask=lambda row: None, **options):
    with pytest.raises(DataError) as caught:
        [ask(row) for row in rows(text, **options)]
    message = str(caught.value)
    assert message.startswith("t.csv: ")
    assert "\n" not in message
    assert len(message) < 600
    return message


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_ends_blank_lines_and_byte_order_marks_do_not_matter(end, mark):
    first, second = rows(mark + end.join(["name, speed", "a,1.5", "", '"b, c", 2e1 ', ""]))
    assert (first.text("name"), first.number("speed"), first.line) == ("a", 1.5, 2)
    assert (second.text("name"), second.count("speed"), second.line) == ("b, c", 20, 4)


def test_what_spreadsheets_save():
    assert [row.line for row in rows(",\nname,speed\n,\na,1\n , \n\n")] == [4]
    assert "no rows below the header" in refusal("name,speed\n,\n")
    for delimiter, said in ((";", "semicolons"), ("\t", "tabs")):  # in another language
        text = f"name{delimiter}speed\na{delimiter}1,5"
        assert f"line 1: columns must be separated by commas, got {said}; save it with commas" in refusal(text)
        assert rows(f"name,speed{delimiter}\na,1", others=True, required=("name",))[0].text("name") == "a"


def test_units_are_those_of_networks_and_clocks():
    read = [(parse_bandwidth, "8Mbps", 1e6), (parse_bandwidth, "1 Gibit/s", 2**27), (parse_size, "4MiB", 2**22),
            (parse_duration, "1.5d", 129600.0), (parse_latency, "50us", 50e-6)]  # fmt: skip
    assert [parse(text) for parse, text, _ in read] == [pytest.approx(value) for *_, value in read]
    said = {1.25e8: "1 Gbit/s", 1.24e8: "992 Mbit/s", 125e3: "1 Mbit/s", 1e3: "8 kbit/s", 124.0: "992 bit/s"}
    assert {rate: readable_rate(rate) for rate in said} == said


@given(st.floats(0, 1e9), st.integers(1, 1_000_000))
def test_every_digit_is_kept(number, count):
    (row,) = rows(f"name,speed\n{count},{number!r}\n")
    assert row.number("speed") == number
    assert row.count("name") == count


def test_what_is_not_given_has_its_default():
    (without,), (empty,) = rows("name,speed\na,\n"), rows("name,speed,share\na,1, \n", optional=("share",))
    assert (without.number("speed", 7.0), without.count("speed", 3), without.text("speed", "x")) == (7.0, 3, "x")
    assert (without.given("speed"), without.given("name"), without.quantity("speed", float)) == (False, True, None)
    assert (empty.share("share", 0.5), empty.quantity("speed", lambda text: 8 * float(text))) == (0.5, 8.0)
    (row,) = rows("a\t4.0\n", header=("name", "speed"), delimiter="\t")
    assert row.count("speed") == 4


def test_columns_of_others_are_passed_over_when_asked_unless_misspelt():
    text = "name,speed,gpu_mem\na,1,2\n"
    assert rows(text, others=True)[0].number("speed") == 1
    assert rows("name,speed,speeds\na,1,2\n", others=True)[0].number("speed") == 1  # alike, but nothing is absent
    assert "unknown column 'gpu_mem'; the known ones are name, speed" in refusal(text)
    for others in (False, True):
        said = refusal("name,speed,gpu_mum\na,1,2\n", optional=("gpu_mem",), others=others)
        assert "unknown column 'gpu_mum'; did you mean 'gpu_mem'?" in said


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,speed\n", "no rows below the header"), (",".join(["name"] * 200_000), "at most 1000 columns"),
        ("name\n", "line 1: column 'speed' is missing; the columns are name"),
        ("name,sped\na,1\n", "line 1: unknown column 'sped'; did you mean 'speed'?"),
        ("name,speed,name\na,1,b\n", "line 1: column 'name' stands twice"),
        ("name,speed\na,1\n\nb\n", "line 4: a row must have 2 values (name, speed), got 1"),
        ('name,speed\na,"1\n', "line 2: unexpected end of data"), (b"name,speed\na,\xff\n", "UTF-8 text, see byte 13"),
        ("name,speed\n" + "x" * 200_000 + ",1\n", "line 2: field larger than field limit"),
    ],
    ids=range(9),
)  # fmt: skip
def test_tables_that_are_none(text, message):
    assert message in refusal(text)


@pytest.mark.parametrize("bad", ["", "fast", "nan", "inf", "-1", "1e400", "1_000", "\u0661", "0x10", "1,5", "1 2"])
@pytest.mark.parametrize("kind", ["number", "count"])
def test_what_is_no_number(kind, bad):
    assert "line 3: speed must be" in refusal(f'name,speed\nb,1\na,"{bad}"\n', lambda row: getattr(row, kind)("speed"))


@pytest.mark.parametrize(
    ("ask", "value", "message"),
    [
        (lambda row: row.number("speed", positive=True), "0", "speed must be finite and > 0, got 0.0"),
        (lambda row: row.number("speed", largest=10), "11", "speed must be at most 10"),
        (lambda row: row.number("speed"), "1" * 5000, "speed must be at most 200 characters, got 5000"),
        (lambda row: row.count("speed"), "1.5", "speed must be a whole number of at least 1, got '1.5'"),
        (lambda row: row.count("speed"), "0", "speed must be a whole number of at least 1, got 0"),
        (lambda row: row.count("speed"), "1e300", "speed must be at most 1,000,000"),
        (lambda row: row.share("speed"), "1.01", "speed must be between 0 and 1"),
        (lambda row: row.text("speed"), '"a\nb"', "speed must be printable text, got 'a\\nb'"),
        (lambda row: row.text("speed"), "x" * 201, "speed must be at most 200 characters, got 201"),
    ],
)
def test_values_out_of_range(ask, value, message):
    assert message in refusal(f"name,speed\na,{value}\n", ask)
