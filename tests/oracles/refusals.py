"""What all commands say when they refuse something."""


def refused(result, *parts, status=None):
    """A line on standard error that has these parts, nothing on standard output, and the exit status."""
    code, out, err = result
    assert code in ((1, 2) if status is None else (status,))
    assert out == ""
    assert err.startswith("queuemodel: error: ")
    assert err.count("\n") == 1
    for part in parts:
        assert str(part) in err
