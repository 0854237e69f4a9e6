"""Bytes of what travels, where the trace does not tell them all; internal, since no recording has all these cases."""

import json
from collections import Counter

import pytest

from queuemodel import DataError
from queuemodel.adapters.tensorflow.reading.tensor_sizes import FILE, Noted, Send, transfer_sizes

WORKER, SERVER = "worker:0", "ps:0"


def fetch(tensor):
    return Send(tensor, SERVER, WORKER, f"{tensor}/_1", "x", 0)


def push(tensor, number=2, consumer="x"):
    return Send(tensor, WORKER, SERVER, f"{tensor}/_{number}", consumer, 0)


def sizes(sends, large=None, rows=(), **noted):
    """By receiver; those that the receiver allocated are ``large``."""
    keys = {s.receiver: (s.receiver, s.destination) for s in sends}
    received = {keys[name]: Counter({size: 3}) for name, size in (large or {}).items()}
    rows = {keys[name] for name in rows}
    found = transfer_sizes(sends, received=received, noted=Noted(**noted), where="trace", rows=rows)
    return {receiver: size for (receiver, _), size in found.items()}


SEVERAL = [push("both", number) for number in (8, 9, 10)]
IDENTITIES = [push("IdentityN", number) for number in (8, 9, 10)]
ROWS = [fetch("w"), fetch("rows"), fetch("b")]
CONTROL = [
    fetch("cond/pivot_t/_4"), push("GroupCrossDeviceControlEdges_0/Identity"), push("lstm/while/LoopCond/_45"),
    push("lstm/while/loop_body_control/_66"), Send("w", SERVER, "ps:1", "w/_9", "y", 0),
]  # fmt: skip


@pytest.mark.parametrize(
    ("sends", "told", "expected"),
    [
        # an embedding is fetched whole and pushed in part: its gradient is not made up for by the small ones
        ([fetch("e"), fetch("a"), fetch("b"), push("d_e"), push("d_a"), push("d_b")],
         {"large": {"e/_1": 2_000_000, "d_e/_2": 500_000}, "parameter_bytes": 2_003_001},
         {"e/_1": 2_000_000, "a/_1": 1500, "b/_1": 1501, "d_e/_2": 500_000, "d_a/_2": 1500, "d_b/_2": 1500}),
        # what the graph knows is exact
        ([fetch("w"), push("d_a"), push("d_b")],
         {"outputs": {"d_a": [40], "d_b": [9_000]}, "parameter_bytes": 10_000},
         {"w/_1": 10_000, "d_a/_2": 40, "d_b/_2": 9_000}),
        # an operation that makes several sends them all, and then says done
        (SEVERAL, {"outputs": {"both": [100, 300]}, "parameter_bytes": 0},
         {"both/_8": 100, "both/_9": 300, "both/_10": 0}),
        # Keras 3's apply_gradients passes them through one IdentityN, of which a user's own trace tells nothing
        ([fetch("a"), fetch("b"), *IDENTITIES],
         {"large": {"a/_1": 800_000, "IdentityN/_9": 800_000}, "parameter_bytes": 800_400},
         {"a/_1": 800_000, "b/_1": 400, "IdentityN/_8": 400, "IdentityN/_9": 800_000, "IdentityN/_10": 400}),
        # rows that servers look up are no parameters; small ones share nothing
        (ROWS, {"large": {"w/_1": 2_000_000, "rows/_1": 300_000}, "rows": ["rows/_1"], "parameter_bytes": 2_000_400},
         {"w/_1": 2_000_000, "rows/_1": 300_000, "b/_1": 400}),
        (ROWS, {"large": {"w/_1": 2_000_000}, "rows": ["rows/_1"], "parameter_bytes": 2_000_400},
         {"w/_1": 2_000_000, "rows/_1": 400, "b/_1": 400}),
        # which of several outputs travels is not guessed
        ([fetch("w"), push("both"), push("twins")],
         {"outputs": {"both": [100, 300], "twins": [200, 200]}, "parameter_bytes": 50},
         {"w/_1": 50, "both/_2": 50, "twins/_2": 200}),
        # names within functions, and what is handed to them
        ([push("cond/then/_0/cond/Mul"), push("Func/cond/then/_0/input/_17", consumer="cond/then/_0/cond/Expand")],
         {"outputs": {"cond/Mul": [16]}, "arguments": {"cond/Expand": 128}, "parameter_bytes": 0},
         {"cond/then/_0/cond/Mul/_2": 16, "Func/cond/then/_0/input/_17/_2": 128}),
        # control messages and the servers' own exchange carry nothing
        ([fetch("v"), *CONTROL], {"parameter_bytes": 700}, {"v/_1": 700} | {s.receiver: 0 for s in CONTROL}),
    ],
)  # fmt: skip
def test_each_tensor_has_its_bytes(sends, told, expected):
    assert sizes(sends, **told) == expected


def test_without_all_sizes_the_first_missing_one_is_named():
    with pytest.raises(DataError, match=r"^trace: the sizes of 1 of 2 tensors .*'b/_1'.*give parameter_bytes"):
        sizes([fetch("a"), fetch("b")], large={"a/_1": 10**6})
    with pytest.raises(DataError, match=r"7,000,400, .* fetched have 2,000,000 and at most 262,143 in each of 1 small"):
        sizes(ROWS, large={"w/_1": 2_000_000, "rows/_1": 300_000}, rows=["rows/_1"], parameter_bytes=7_000_400)


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"outputs": 3}', '{"outputs": {"a": [-1]}}', '{"outputs": {"a": 7}}', '{"sizes": {}}', "null",
     '{"arguments": {"a": 1e99}}', '{"parameter_bytes": 10000000000000000000000}', "[" * 100_000],
)  # fmt: skip
def test_a_damaged_note_is_one_line(tmp_path, text):
    (tmp_path / FILE).write_text(text)
    with pytest.raises(DataError, match=FILE) as caught:
        Noted.beside(tmp_path)
    assert "\n" not in str(caught.value)
    noted = Noted(outputs={"a": [1, None], "b": None}, arguments={"c": 3, "d": None}, parameter_bytes=9)
    (tmp_path / FILE).write_text(json.dumps(noted.__dict__))
    assert Noted.beside(tmp_path) == noted
    assert Noted.beside(tmp_path / "elsewhere") == Noted()
