"""Bytes of what travels, where the trace does not tell them all."""

import json
from collections import Counter

import pytest

from queuemodel import DataError
from queuemodel.adapters.tensorflow.reading.tensor_sizes import FILE, Noted, Send, transfer_sizes


def fetch(tensor, *, receiver=None, consumer="x"):
    return Send(tensor, "ps:0", "worker:0", receiver or f"{tensor}/_1", consumer, 0)


def push(tensor, *, receiver=None, consumer="x"):
    return Send(tensor, "worker:0", "ps:0", receiver or f"{tensor}/_2", consumer, 0)


def sizes(sends, *, received=None, noted=None, rows=()):
    received = {key: Counter({size: 3}) for key, size in (received or {}).items()}
    found = transfer_sizes(sends, received=received, noted=noted or Noted(), where="trace", rows=rows)
    return {receiver: size for (receiver, _), size in found.items()}


def test_small_gradients_are_no_padding():
    """A large embedding is fetched whole and pushed in part: its gradient must not be made up for by the small ones."""
    sends = [fetch("embedding"), fetch("a"), fetch("b"), push("d_embedding"), push("d_a"), push("d_b")]
    large = {("embedding/_1", "worker:0"): 2_000_000, ("d_embedding/_2", "ps:0"): 500_000}
    found = sizes(sends, received=large, noted=Noted(parameter_bytes=2_003_000))
    assert found["a/_1"] + found["b/_1"] == 3_000
    assert found["d_a/_2"] + found["d_b/_2"] == 3_000
    assert sum(found[f"{s}/_2"] for s in ("d_embedding", "d_a", "d_b")) == 503_000


def test_what_the_graph_knows_is_exact():
    noted = Noted(outputs={"d_a": [40], "d_b": [9_000]}, parameter_bytes=10_000)
    found = sizes([fetch("w"), push("d_a"), push("d_b")], noted=noted)
    assert found == {"w/_1": 10_000, "d_a/_2": 40, "d_b/_2": 9_000}


def test_an_operation_that_makes_several_sends_them_all_and_then_says_done():
    sends = [push("both", receiver=f"both/_{k}") for k in (8, 9, 10)]
    noted = Noted(outputs={"both": [100, 300]}, parameter_bytes=0)
    assert sizes(sends, noted=noted) == {"both/_8": 100, "both/_9": 300, "both/_10": 0}


def test_gradients_that_one_operation_hands_over_are_all_counted():
    """Keras 3's apply_gradients passes them through one IdentityN, of which a user's own trace tells nothing."""
    sends = [fetch("a"), fetch("b"), *(push("IdentityN", receiver=f"IdentityN/_{k}") for k in (8, 9, 10))]
    large = {("a/_1", "worker:0"): 800_000, ("IdentityN/_9", "ps:0"): 800_000}
    found = sizes(sends, received=large, noted=Noted(parameter_bytes=800_400))
    assert found == {"a/_1": 800_000, "b/_1": 400, "IdentityN/_8": 400, "IdentityN/_9": 800_000, "IdentityN/_10": 400}


def test_rows_that_servers_look_up_are_no_parameters():
    sends, large = [fetch("w"), fetch("rows"), fetch("b")], {"w/_1": 2_000_000, "rows/_1": 300_000}
    told = {"received": {(name, "worker:0"): size for name, size in large.items()}, "rows": {("rows/_1", "worker:0")}}
    assert sizes(sends, noted=Noted(parameter_bytes=2_000_400), **told) == large | {"b/_1": 400}
    few = {("w/_1", "worker:0"): 2_000_000}  # rows that are small as well share nothing
    found = sizes(sends, received=few, rows={("rows/_1", "worker:0")}, noted=Noted(parameter_bytes=2_000_400))
    assert found == {"w/_1": 2_000_000, "rows/_1": 400, "b/_1": 400}
    with pytest.raises(DataError, match=r"7,000,400, .* fetched have 2,000,000 and at most 262,143 in each of 1 small"):
        sizes(sends, noted=Noted(parameter_bytes=7_000_400), **told)


def test_which_of_several_outputs_is_not_guessed():
    noted = Noted(outputs={"both": [100, 300], "twins": [200, 200]}, parameter_bytes=50)
    found = sizes([fetch("w"), push("both"), push("twins")], noted=noted)
    assert found == {"w/_1": 50, "both/_2": 50, "twins/_2": 200}


def test_names_within_functions_and_what_is_handed_to_them():
    noted = Noted(outputs={"cond/Mul": [16]}, arguments={"cond/Expand": 128}, parameter_bytes=0)
    inner = push("cond/then/_0/cond/Mul")
    argument = push("Func/cond/then/_0/input/_17", consumer="cond/then/_0/cond/Expand")
    assert sorted(sizes([inner, argument], noted=noted).values()) == [16, 128]


def test_control_messages_and_the_servers_own_exchange_carry_nothing():
    sends = [
        fetch("w"),
        fetch("cond/pivot_t/_4"),
        push("GroupCrossDeviceControlEdges_0/Identity"),
        push("lstm/while/LoopCond/_45"),
        push("lstm/while/loop_body_control/_66"),
        Send("w", "ps:0", "ps:1", "w/_9", "y", 0),
    ]
    assert sum(sizes(sends, noted=Noted(parameter_bytes=700)).values()) == 700


def test_without_all_sizes_the_first_missing_one_is_named():
    with pytest.raises(DataError, match=r"^trace: the sizes of 1 of 2 tensors .*'b/_1'.*give parameter_bytes"):
        sizes([fetch("a"), fetch("b")], received={("a/_1", "worker:0"): 10**6})


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


def test_a_note_is_read_again(tmp_path):
    noted = Noted(outputs={"a": [1, None], "b": None}, arguments={"c": 3, "d": None}, parameter_bytes=9)
    (tmp_path / FILE).write_text(json.dumps(noted.__dict__))
    assert Noted.beside(tmp_path) == noted
    assert Noted.beside(tmp_path / "elsewhere") == Noted()
