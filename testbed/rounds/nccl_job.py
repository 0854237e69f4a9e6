"""Trains a small transformer over NCCL with several ranks on one GPU, each as if on a node of its own; writes traces.

    nvidia-cuda-mps-control -d
    torchrun --nproc-per-node 2 nccl_job.py OUT [JOB ...]

NCCL takes ranks of different ``NCCL_HOSTID`` for different nodes, which talk over sockets. MPS gives each rank the same
share of the GPU, however many there are, and TCP's pacing (``SO_MAX_PACING_RATE``) the same rate to every connection: a
rank has one for each process group. Needs one GPU, Linux and PyTorch 2.6 or newer, nothing of this package; without a
GPU it runs over gloo, to try it.

OUT/JOB/trace_nN has the traces of up to 4 ranks, OUT/measured.jsonl the time of each step of each rank without the
profiler (s), and OUT/collectives.csv times of collectives by the bytes that nccl-tests counts. The first run chooses
the batch (OUT/batches.json), which the others take.
"""

import argparse
import contextlib
import itertools
import json
import os
import socket
import stat
import time
from pathlib import Path

RANK, RANKS = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
os.environ |= {
    "NCCL_HOSTID": f"node{RANK}", "NCCL_SOCKET_IFNAME": "lo", "NCCL_NET": "Socket", "NCCL_IB_DISABLE": "1",
    "NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_ALGO": "Ring", "NCCL_MIN_NCHANNELS": "1",
    "NCCL_MAX_NCHANNELS": "1", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "8", "OMP_NUM_THREADS": "1",
}  # fmt: skip

import torch  # noqa: E402 - after what it reads
from torch import distributed, nn  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard  # noqa: E402
from torch.distributed.fsdp.wrap import ModuleWrapPolicy  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402
from torch.profiler import profile, schedule  # noqa: E402

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda", 0) if CUDA else torch.device("cpu")
RATE = 500_000_000  # B/s of a connection
LAYERS, WIDTH, WORDS, LENGTH = 8, 320, 2048, 256
TIMED, TRACED = 40, 10  # steps
COMPUTE_S = (0.150, 0.100)  # that a batch is to compute, in float32 and in bfloat16

JOBS = {
    "ddp": {}, "fsdp": {}, "fsdp-mixed": {"mixed": True}, "fsdp-kept": {"reshard": False}, "hsdp": {"shards": 2},
    "fsdp-clipped": {"mixed": True, "clip": 1.0}, "fsdp1": {}, "alone": {}, "fsdp-accumulated": {"accumulate": 2},
}  # fmt: skip


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        block = {"dropout": 0.0, "activation": "gelu", "batch_first": True, "norm_first": True}
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(WIDTH, 5, 4 * WIDTH, **block) for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens):
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def wrapped(name, *, mixed=False, reshard=True, shards=0, **_):
    """The module as the job trains it."""
    model = Model().to(DEVICE)
    if name == "ddp":
        return DistributedDataParallel(model)
    if name == "fsdp1":
        policy = ModuleWrapPolicy({nn.TransformerEncoderLayer})
        return FullyShardedDataParallel(model, auto_wrap_policy=policy, use_orig_params=True, device_id=DEVICE)
    if name == "alone":
        return model
    sizes = {"copy": RANKS // shards, "shard": shards} if shards else {"shard": RANKS}
    mesh = init_device_mesh(DEVICE.type, tuple(sizes.values()), mesh_dim_names=tuple(sizes))
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if mixed else MixedPrecisionPolicy()
    for module in (*model.blocks, model):
        fully_shard(module, mesh=mesh, reshard_after_forward=reshard, mp_policy=policy)
    return model


def pace():
    """Send at most at RATE over each connection of this process."""
    for number in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):  # it is no socket, or closed by now
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                with socket.socket(fileno=os.dup(number)) as connection:
                    connection.setsockopt(socket.SOL_SOCKET, 47, RATE)  # SO_MAX_PACING_RATE


def durations(run, count, done=lambda: None):
    """Seconds of each run where it is computed; the program is at most one ahead of the GPU."""
    marks = []
    for number in range(count + 1):
        if number:
            run()
        if CUDA:
            marks.append(torch.cuda.Event(enable_timing=True, blocking=True))
            marks[-1].record()
            marks[max(0, number - 1)].synchronize()
        else:
            marks.append(time.perf_counter())
        if number:
            done()
    if CUDA:
        marks[-1].synchronize()
    return [1e-3 * a.elapsed_time(b) if CUDA else b - a for a, b in itertools.pairwise(marks)]


def train(name, out, batch):
    """Warm up, time steps, then record others."""
    options = JOBS[name]
    model = wrapped(name, **options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=CUDA)
    tokens = torch.randint(WORDS, (batch, LENGTH + 1), device=DEVICE)
    passes = options.get("accumulate", 1)

    def step():
        optimizer.zero_grad()
        for number in range(passes):
            if passes > 1:
                model.set_requires_gradient_sync(number == passes - 1)
            logits = model(tokens[:, :-1]).flatten(0, 1).float()
            loss = nn.functional.cross_entropy(logits, tokens[:, 1:].flatten())
            loss.backward()
        if options.get("clip"):
            nn.utils.clip_grad_norm_(model.parameters(), options["clip"])
        optimizer.step()
        if options.get("clip"):
            loss.item()  # as a program that prints it

    step()
    pace()  # the groups are connected now
    durations(step, 5)
    distributed.barrier()
    every = [None] * RANKS
    distributed.all_gather_object(every, [round(time, 6) for time in durations(step, TIMED)])
    if RANK == 0:
        with (out / "measured.jsonl").open("a") as file:
            file.write(json.dumps({"job": name, "ranks": RANKS, "batch_size": batch, "steps_s": every}) + "\n")
    if RANKS > 4 or (RANKS > 2 and name == "alone"):
        return
    with profile(schedule=schedule(wait=1, warmup=2, active=TRACED), record_shapes=True) as profiler:
        durations(step, 3 + TRACED, profiler.step)
    folder = out / name / f"trace_n{RANKS}"
    folder.mkdir(parents=True, exist_ok=True)
    profiler.export_chrome_trace(str(folder / f"rank{RANK}.pt.trace.json"))


def collectives(out):
    """Times of collectives, by the bytes of the whole data (us)."""
    for size in (1024 * 4**k for k in range(9)):
        whole, part = (torch.zeros(size // 4 // share, device=DEVICE) for share in (1, RANKS))
        for kind, run in {
            "all-gather": lambda whole=whole, part=part: distributed.all_gather_into_tensor(whole, part),
            "reduce-scatter": lambda whole=whole, part=part: distributed.reduce_scatter_tensor(part, whole),
            "all-reduce": lambda whole=whole: distributed.all_reduce(whole),
        }.items():
            run()
            pace()
            distributed.barrier()
            times = durations(run, 4 if size > 5e6 else 20)
            if RANK == 0:
                with (out / "collectives.csv").open("a") as file:
                    file.write(f"{kind},{RANKS},{size},{1e6 * sum(times) / len(times):.1f}\n")


def batch_of(mixed):
    """Sequences that compute for as long as they are to."""
    model, batch = Model().to(DEVICE, torch.bfloat16 if mixed else torch.float32), 8
    for _ in range(3):
        tokens = torch.randint(WORDS, (batch, LENGTH), device=DEVICE)
        times = durations(lambda tokens=tokens: model(tokens).float().square().mean().backward(), 6)[2:]
        batch = max(1, min(200, round(batch * COMPUTE_S[mixed] * len(times) / sum(times))))
    return batch


def main(out, jobs):
    out.mkdir(parents=True, exist_ok=True)
    distributed.init_process_group("nccl" if CUDA else "gloo", device_id=DEVICE if CUDA else None)
    if not (out / "batches.json").exists():
        distributed.barrier()
        found = [batch_of(mixed) for mixed in (False, True)]
        if RANK == 0:
            (out / "batches.json").write_text(json.dumps(found))
        distributed.barrier()
    batches = json.loads((out / "batches.json").read_text())
    for name in jobs:
        train(name, out, batches[JOBS[name].get("mixed", False)])
    collectives(out)
    distributed.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("jobs", nargs="*", default=[name for name in JOBS if RANKS > 1 or "shards" not in JOBS[name]])
    main(**vars(parser.parse_args()))
