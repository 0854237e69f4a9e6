"""Traces of an accelerator that computes behind its program, over NCCL: made after those that PyTorch writes.

Names and arguments are those of published ones: kernels and the program's record of a collective as in
libkineto/src/output_json.cpp of pytorch/kineto and torch/profiler/_trace_validator.py of PyTorch 2.13 (both BSD-3);
kernels that tell nothing as in pytorch/pytorch#131462; `nccl:all_reduce` with its tensor as in
tb_plugin/test/test_profiler.py of pytorch/kineto. The times are made, so that what must be read is known.
"""

import json

import pytest

import queuemodel as qm
from queuemodel.adapters import read_pytorch

MS = 1000.0  # microseconds
LAUNCH = 2 * MS  # of the program, per call
SIZES = (1_000_000, 250_000)  # elements of the two buckets

#: Kernels of an all-reduce by versions of NCCL, and AMD's of any collective.
KERNELS = (
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)",
    "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
)
GENERIC = "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)"
GRADIENT = "torch::autograd::AccumulateGrad"


def told(size):
    """What PyTorch tells of a collective in its record, and, if all is well, in its kernel."""
    return {
        "Collective name": "allreduce", "In msg nelems": size, "Out msg nelems": size, "Group size": 2,
        "dtype": "Float", "In split size": "[]", "Out split size": "[]", "Process Group Name": "0",
        "Process Group Description": "default_pg", "Process Group Ranks": "[0, 1]",
    }  # fmt: skip


def made(rank, *, steps=3, ahead=True, reduction=GENERIC, teller="kernel", loading=0.0):
    """Events of one rank: forward 30 ms, two layers' backward 30 ms each, their buckets' all-reduces 10 and 20 ms.

    The program launches a step's kernels in 2 ms each and goes on to the next step at once (``ahead``), or waits for
    them. The second bucket's kernel begins when the first's has ended. Before a step it waits ``loading`` for a batch.
    """
    events, correlation = [], 0
    program, there, network = 0.0, 0.0, 0.0

    def event(name, begin, duration, cat="cpu_op", **args):
        events.append({"ph": "X", "cat": cat, "name": name, "ts": begin, "dur": duration, "args": args})
        return begin + duration

    def kernel(name, begin, duration, **args):
        return event(name, begin, duration, "kernel", correlation=correlation, **args)

    def launched(begin, cat="cuda_runtime"):
        nonlocal correlation
        correlation += 1
        return event("cudaLaunchKernel", begin, LAUNCH, cat, correlation=correlation)

    for number in range(steps):
        start = program
        program = event("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", program, loading)
        program = launched(program)
        first = max(program, there)
        there = kernel("gemm", first, 30 * MS)
        for size, took in zip(SIZES, (10 * MS, 20 * MS), strict=True):
            begin, tensor = program, {"Input Dims": [[size]], "Input type": ["float"]}
            program = launched(program, "cuda_driver")
            there = kernel("gemm_backward", max(program, there), 30 * MS)
            program = event(GRADIENT, program, 10.0, **tensor)
            event(f"autograd::engine::evaluate_function: {GRADIENT}", begin, program - begin)
            lists = {"Input Dims": [[[size]], [], []], "Input type": ["TensorList", "", ""]}
            event("c10d::allreduce_", program, LAUNCH + 5, **lists)
            recorded = lists | (told(size) if teller in ("kernel", "record") else {})
            event("record_param_comms", program, LAUNCH + 5, **recorded)
            noted = tensor if teller == "annotation" else {}
            event("nccl:all_reduce", program, LAUNCH + 5, "user_annotation", **noted)
            program = launched(program)
            begin = max(there, network)
            network = kernel(reduction, begin, took, **(told(size) if teller == "kernel" else {}))
            event("nccl:all_reduce", begin, took, "gpu_user_annotation")
        if not ahead:
            program = max(program, there, network)
        program = launched(program)
        there = kernel("sgd", max(there, network), 10.0)  # the optimizer waits for the gradients
        event(f"ProfilerStep#{number}", start, program - start, "user_annotation")
        event(f"ProfilerStep#{number}", first, there - first, "gpu_user_annotation")
    info = {"backend": "nccl", "rank": rank, "world_size": 2}
    return {"traceEvents": events, "distributedInfo": info}


def profile_of(folder, **how):
    for rank in range(2):
        (folder / f"rank{rank}.pt.trace.json").write_text(json.dumps(made(rank, **how)))
    return read_pytorch([folder], batch_size=8)


@pytest.mark.parametrize("how", [{}, {"ahead": False}, {"steps": 12}])
def test_times_are_those_of_the_accelerator(tmp_path, how):
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


@pytest.mark.parametrize(("loading", "least", "most"), [(50 * MS, 0.0, 0.0), (150 * MS, 0.045, 0.055)])
def test_program_waits_while_the_accelerator_idles(tmp_path, loading, least, most):
    """A step of the program is the wait and seven launches of 2 ms; the accelerator needs 110 ms of it."""
    for one in profile_of(tmp_path, loading=loading, steps=6).rounds:
        if one.number in (0, 5):  # before which nothing ran, and after which nothing does
            continue
        assert one.computed == pytest.approx(0.090, abs=1e-4)
        assert least <= one.waited <= most
        assert one.round_time == pytest.approx(max(0.110, loading / 1e6 + 7 * LAUNCH / 1e6), abs=5e-3)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("teller", ["record", "annotation"])
def test_sizes_from_names_and_program_records(tmp_path, name, teller):
    rounds = profile_of(tmp_path, reduction=name, teller=teller).rounds
    assert [[bucket.bytes for bucket in one.buckets] for one in rounds] == [[4 * size for size in SIZES]] * 6


def replaced(folder, old, new):
    for path in folder.iterdir():
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))
    return path.read_text()


def test_groups_without_description_and_subgroups(tmp_path):
    """PyTorch leaves the value of the description out."""
    whole = profile_of(tmp_path)
    with pytest.raises(json.JSONDecodeError):
        json.loads(replaced(tmp_path, '"Process Group Description": "default_pg",', '"Process Group Description": ,'))
    assert read_pytorch([tmp_path], batch_size=8) == whole
    replaced(tmp_path, '"Group size": 2', '"Group size": 1')
    with pytest.raises(qm.DataError, match="ProfilerStep#0: gradients are reduced among 1 of 2 ranks"):
        read_pytorch([tmp_path], batch_size=8)
