"""Traces of an accelerator that computes behind its program, over NCCL: made after the format that PyTorch writes."""

import json

import pytest

import queuemodel as qm
from queuemodel.adapters.pytorch import read_traces

MS = 1000.0  # microseconds
STEP, LAUNCH = 100 * MS, 2 * MS  # on the accelerator; of the program, per call
SIZES = (1_000_000, 250_000)  # elements of the two buckets


def made(rank, *, steps=3, ahead=True, collective=True):
    """Events of one rank: forward 30 ms, two layers' backward 30 ms each, their buckets' all-reduces 10 and 20 ms.

    The program launches a step's kernels in 2 ms each and goes on to the next step at once (``ahead``), or waits for
    them. The second bucket's kernel begins when the first's has ended.
    """
    events, correlation = [], 0
    program, there, network = 0.0, 0.0, 0.0

    def call(name, duration, cat="cpu_op", **args):
        nonlocal program
        events.append({"ph": "X", "cat": cat, "name": name, "ts": program, "dur": duration, "args": args})
        program += duration

    def kernel(name, begin, duration, **args):
        events.append(
            {"ph": "X", "cat": "kernel", "name": name, "ts": begin, "dur": duration, "tid": 7,
             "args": {"correlation": correlation, **args}}
        )  # fmt: skip
        return begin + duration

    def launched(cat="cuda_runtime"):
        nonlocal correlation
        correlation += 1
        call("cudaLaunchKernel", LAUNCH, cat, correlation=correlation)

    for number in range(steps):
        start = program
        launched()
        first = there = kernel("gemm", max(program, there), 30 * MS) - 30 * MS
        there += 30 * MS
        for size in SIZES:
            begin = program
            launched("cuda_driver")
            there = kernel("gemm_backward", max(program, there), 30 * MS)
            call("torch::autograd::AccumulateGrad", 10.0, **{"Input Dims": [[size]], "Input type": ["float"]})
            name = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
            events.append({"ph": "X", "cat": "cpu_op", "name": name, "ts": begin, "dur": program - begin})
            dims = {"Input Dims": [[[size]]], "Input type": ["TensorList"]}
            events.append(
                {"ph": "X", "cat": "cpu_op", "name": "c10d::allreduce_", "ts": program, "dur": 5.0, "args": dims}
            )
            launched()
            told = {"Collective name": "allreduce", "In msg nelems": size, "dtype": "Float"} if collective else {}
            name = "ncclDevKernel_Generic" if collective else "ncclKernel_AllReduce_RING_LL_Sum_float"
            network = kernel(name, max(there, network), (10 if size == SIZES[0] else 20) * MS, **told)
        if not ahead:
            program = max(program, there, network)
        launched()
        there = max(there, network)  # the optimizer waits for the gradients
        there = kernel("sgd", there, 10.0)
        for cat, begin, end in (("user_annotation", start, program), ("gpu_user_annotation", first, there)):
            name = f"ProfilerStep#{number}"
            events.append({"ph": "X", "cat": cat, "name": name, "ts": begin, "dur": end - begin, "args": {}})
    info = {"backend": "nccl", "rank": rank, "world_size": 2}
    return {"traceEvents": events, "distributedInfo": info}


def profile_of(folder, **how):
    for rank in range(2):
        (folder / f"rank{rank}.pt.trace.json").write_text(json.dumps(made(rank, **how)))
    return read_traces([folder], batch_size=8)


@pytest.mark.parametrize("how", [{}, {"ahead": False}, {"steps": 12}])
def test_times_are_the_accelerators_not_the_programs(tmp_path, how):
    """Each step: 90 ms of computation, the last bucket ready at its end and reduced 20 ms later."""
    profile = profile_of(tmp_path, **how)
    rounds = [one for one in profile.rounds if one.rank == 0][:-1]  # the last ends with its own kernels
    assert len(rounds) == how.get("steps", 3) - 1
    for one in rounds:
        assert one.computed == pytest.approx(0.090, abs=1e-4)
        waits = 0.0 if how.get("ahead", True) else 2 * LAUNCH / (1000 * MS)  # the program launches two kernels more
        assert one.round_time == pytest.approx(0.110 + waits, abs=1e-4)
        assert [bucket.bytes for bucket in one.buckets] == [4 * size for size in SIZES]
        for bucket, ready, took in zip(one.buckets, (0.060, 0.090), (0.010, 0.020), strict=True):
            assert bucket.ready == pytest.approx(ready, abs=1e-4)
            assert bucket.begin == pytest.approx(bucket.ready, abs=1e-4)
            assert bucket.end - bucket.begin == pytest.approx(took, abs=1e-4)
        assert [gradient.ready for gradient in one.gradients] == pytest.approx([0.060, 0.090], abs=1e-4)


def test_older_traces_name_the_collective_in_the_kernel_only(tmp_path):
    """Then the bytes are those of the tensors handed over."""
    with pytest.raises(qm.DataError, match="size of"):
        profile_of(tmp_path, collective=False)  # a list of tensors of unknown type
    for path in tmp_path.iterdir():
        path.write_text(path.read_text().replace('"TensorList"', '"float"'))
    profile = read_traces([tmp_path], batch_size=8)
    assert [bucket.bytes for bucket in profile.rounds[0].buckets] == [4 * size for size in SIZES]
