"""Policies and simulation against plain versions: who gets which nodes, and what a history of nodes amounts to."""

from itertools import pairwise

import numpy as np
import pytest

from queuemodel import scheduling as qs


def drawn(seed, count=9, nodes=14, **rest):
    """Jobs of which no two numbers are alike, on curves with dents, within limits; and the speeds of each."""
    rng, time, jobs = np.random.default_rng(seed), 0.0, []
    for k in range(count):
        least = int(rng.integers(1, 4))
        most = int(rng.integers(least, nodes + 3))
        curve = {n: float(n ** rng.uniform(0.3, 0.9) * rng.uniform(0.7, 1.3)) for n in range(least, nodes + 1)}
        stretches = [(float(rng.uniform(1, 3)), {n: x * rng.uniform(0.5, 2) for n, x in curve.items()}) for _ in "abc"]
        asked = int(rng.integers(least, min(most, nodes) + 1))
        limits = {"least_nodes": least, "most_nodes": most, "requested_nodes": asked, "kind": "xyz"[k % 3]}
        made = qs.StagedCurve(stretches) if k % 2 and rest.get("staged") else curve
        early = 0.5 if rest.get("staged") else 0.0
        job = qs.ClusterJob(f"{k}", arrival_time=time, steps=float(rng.exponential(30)) + 1, curve=made, **limits,
                     end_probability=early)  # fmt: skip
        time += rng.exponential(rest.get("gap", 4.0))
        jobs.append(job)
    return jobs


def corners(X, floor):
    """Nodes where a curve {nodes: speed} touches its least concave majorant, up to its fastest."""
    least, fastest = min(X), max(X, key=X.get)
    usable = {n: x for n, x in X.items() if n == least or x / n >= floor * X[least] / least}
    fastest = max(usable, key=usable.get)
    at = {0: 0.0} | {n: x for n, x in usable.items() if n <= fastest}
    chords = [(a, b) for a in at for b in at if a < b]
    return [
        n for n in at if n and all(at[n] >= at[a] + (at[b] - at[a]) * (n - a) / (b - a) for a, b in chords if a < n < b)
    ]


def in_turn(order, least, wanted, nodes):
    granted = [0] * len(least)
    for j in order:
        if least[j] <= nodes:
            granted[j] = min(wanted[j], nodes)
            nodes -= granted[j]
    return granted


def to_the_dearest(segments, nodes):
    """To the next corner of whose segment, (corner, value of a node), is worth most, as long as it fits."""
    granted, nexts = [0] * len(segments), [0] * len(segments)
    waiting = {j for j, own in enumerate(segments) if own}
    while waiting:
        j = max(waiting, key=lambda j: segments[j][nexts[j]][1])
        corner, worth = segments[j][nexts[j]]
        if worth <= 0 or corner - granted[j] > nodes:
            waiting.remove(j)
            continue
        nodes -= corner - granted[j]
        granted[j], nexts[j] = corner, nexts[j] + 1
        if nexts[j] == len(segments[j]):
            waiting.remove(j)
    return granted


def backfilled(left, asked, X, nodes):
    """All wait; whoever is behind the first that does not fit must not delay it."""
    service = [w / x[a] for w, x, a in zip(left, X, asked, strict=True)]
    granted = [0] * len(asked)
    head = next((j for j in range(len(asked)) if sum(asked[: j + 1]) > nodes), len(asked))
    granted[:head] = asked[:head]
    ends = sorted(range(head), key=service.__getitem__)
    free = nodes - sum(granted)
    if head < len(asked):
        there = free + np.cumsum([asked[j] for j in ends])
        first = int(np.argmax(there >= asked[head]))
        shadow, spare = service[ends[first]], there[first] - asked[head]
        for j in range(head + 1, len(asked)):
            if asked[j] <= free and (service[j] <= shadow or asked[j] <= spare):
                granted[j], free = asked[j], free - asked[j]
                spare -= 0 if service[j] <= shadow else asked[j]
    return granted


def plain(policy, jobs, nodes):
    """Nodes of each job, by the words of the policies."""
    least, asked = [job.least_nodes for job in jobs], [job.requested for job in jobs]
    most, left = [min(job.most_nodes, nodes) for job in jobs], np.array([job.steps for job in jobs])
    X = [{n: job.curve(n) for n in range(a, b + 1)} for job, a, b in zip(jobs, least, most, strict=True)]
    first, m, match = range(len(jobs)), len(jobs), type(policy).__name__
    floor = getattr(policy, "floor", 0.0)
    at = [corners(x, floor) for x in X]
    gains = [
        [(b, (x[b] - x.get(a, 0.0)) / (b - a)) for a, b in pairwise([0, *own])] for x, own in zip(X, at, strict=True)
    ]
    alone = np.array([own[0][1] for own in gains])
    if match == "FIFO":
        wanted = asked if policy.fixed is None else np.clip(policy.fixed, least, most).tolist()
        return [w if sum(wanted[: j + 1]) <= nodes else 0 for j, w in enumerate(wanted)]
    if match == "Backfill":
        return backfilled(left, asked, X, nodes)
    if match == "ShortestJobFirst":
        return in_turn(sorted(first, key=lambda j: left[j] / X[j][asked[j]]), asked, asked, nodes)
    if match == "LeastAttainedService":
        return in_turn(first, asked, asked, nodes)
    if match == "EqualShare":
        granted = in_turn(first, least, least, nodes)
        while sum(granted) < nodes and (more := [j for j in first if 0 < granted[j] < most[j]]):
            granted[min(more, key=lambda j: granted[j])] += 1
        return granted
    best = [max(x, key=x.get) for x in X]
    if match == "SRPT":
        return in_turn(sorted(first, key=lambda j: left[j] / X[j][best[j]]), least, best, nodes)
    if match == "ModelBased":
        t = policy.threshold
        wanted = {
            "useful": best,
            "efficient": [corners(x, t)[-1] for x in X],
            "marginal": [max([b for b, gain in own if gain >= t * x[a] / a], default=at[0]) for x, own, a, at in
                         zip(X, gains, [own[0] for own in at], at, strict=True)],
        }[policy.grant]  # fmt: skip
        service = [w / x[n] for w, x, n in zip(left, X, wanted, strict=True)]
        keys = {
            "arrival": list(first),
            "shortest": service,
            "gain": [s * n for s, n in zip(service, wanted, strict=True)],
        }
        return in_turn(sorted(first, key=keys[policy.order].__getitem__), least, wanted, nodes)
    if match == "HeSRPT":
        fits = [[(n, x[n]) for n in x if n <= b] for x, b in zip(X, best, strict=True)]
        powers = [
            np.clip(np.polyfit(*np.log(np.transpose(own)), 1)[0], 0.01, 0.99) if len(own) > 1 else 0.01 for own in fits
        ]
        q = 1 / (1 - (np.mean(powers) if policy.exponent is None else policy.exponent))
        falling = sorted(first, key=lambda j: -left[j] / X[j][least[j]])
        share = {j: ((k / m) ** q - ((k - 1) / m) ** q) * nodes for k, j in enumerate(falling, start=1)}
        granted = in_turn(
            falling[::-1], least, [min(max(int(share[j] + 1e-9), least[j]), best[j]) for j in first], nodes
        )
        for j in falling[::-1]:
            granted[j] += min(best[j] - granted[j], nodes - sum(granted)) if granted[j] else 0
        return granted
    if match in ("Optimus", "FitnessMaximization"):
        if sum(least) >= nodes:
            return in_turn(first, least, least, nodes)
        share = np.clip(nodes // m, least, most)
        weight = left if match == "Optimus" else [x[n] for x, n in zip(X, share.tolist(), strict=True)]
        saved = [[(b, (1e200 if not a else (1 / x[a] - 1 / x[b]) / (b - a)) * w) for a, b in pairwise([0, *own])]
                 for x, own, w in zip(X, at, weight, strict=True)]  # fmt: skip
        return to_the_dearest(saved, nodes)
    if match == "GreedyGain":
        weight = (alone / left) ** policy.power / alone
    else:  # prices by rank of the time left
        q, rank = 1 / (1 - policy.exponent), np.empty(m)
        rank[np.argsort(-left / alone)] = np.arange(1, m + 1)
        with np.errstate(divide="ignore"):  # (k^q - (k - 1)^q)^(1/q), whose powers may be too large for numbers
            weight = np.exp(np.log(rank) + np.log1p(-np.exp(q * np.log1p(-1 / rank))) / q) / alone
    return to_the_dearest([[(b, gain * w) for b, gain in own] for own, w in zip(gains, weight, strict=True)], nodes)


POLICIES = [
    qs.FIFO(), qs.FIFO(3), qs.ShortestJobFirst(), qs.Backfill(), qs.LeastAttainedService(), qs.EqualShare(), qs.SRPT(),
    qs.HeSRPT(), qs.HeSRPT(0.3), *(qs.ModelBased(order, grant, t) for order in ("arrival", "shortest", "gain")
                                   for grant, t in (("useful", 0.5), ("efficient", 0.7), ("marginal", 0.3))),
    qs.GreedyGain(), qs.GreedyGain(0.7, power=0.3), qs.RankPriced(), qs.RankPriced(0.8, floor=0.6),
    qs.RankPriced(1 - 1e-9), qs.Optimus(),
    qs.FitnessMaximization(),
]  # fmt: skip


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_who_gets_which_nodes(policy):
    for seed in range(12):
        for count, nodes in ((1, 9), (4, 14), (9, 14), (5, 40)):
            jobs = drawn(seed, count, nodes, gap=0.0)  # all present at once
            changes = qs.schedule(jobs, policy, nodes=nodes, history=True).history
            found = {int(job): granted for time, job, granted in changes if time == 0}
            assert [found.get(job, 0) for job in range(count)] == plain(policy, jobs, nodes), (seed, count)


def placed(changes, cluster):
    """Of each change (time, job, nodes) whether the job is on no more machines than it needs."""
    size = cluster.nodes_per_machine
    free = [min(size, cluster.count - at) for at in range(0, cluster.count, size)]
    held, packed = {}, {}
    for time in np.unique(changes[:, 0]):
        now = [(int(j), int(n)) for at, j, n in changes if at == time]
        for machine, taken in (one for j, _ in now for one in held.pop(j, [])):
            free[machine] += taken
        for j, n in sorted(((j, n) for j, n in now if n), key=lambda one: -one[1]):
            held[j], rest = [], n
            while rest:
                whole = [i for i, room in enumerate(free) if room >= n]
                i = min(whole, key=free.__getitem__) if whole else int(np.argmax(free))
                taken = min(rest, free[i])
                held[j].append((i, taken))
                free[i], rest = free[i] - taken, rest - taken
            packed[time, j] = len(held[j]) <= -(-n // size)
    return packed


@pytest.mark.parametrize("policy", [
    qs.EqualShare(), qs.LeastAttainedService((20.0, 60.0)), qs.RankPriced(0.6), qs.SRPT(), qs.Backfill(),
], ids=lambda policy: policy.name)  # fmt: skip
@pytest.mark.parametrize("seed", range(3))
def test_records_and_figures_follow_from_the_history(policy, seed):
    """Starts and restarts, stretches, machines, early ends, limits and a warm-up at once; progress is added up anew."""
    cluster = qs.Nodes(14, restart_seconds=1.5, start_seconds=0.7, nodes_per_machine=4, spread_speed=0.6)
    jobs = qs.Workload(drawn(seed, 24, staged=True, gap=6.0))
    s = qs.schedule(jobs, policy, nodes=cluster, seed=seed, warmup=0.3, history=True)
    work, packed = jobs.shares(seed) * [job.steps for job in jobs], placed(s.history, cluster)
    assert s.early.tolist() == (jobs.shares(seed) < 1).tolist()
    shared = []
    for j, job in enumerate(jobs):
        parts = getattr(job.curve, "stretches", [(1.0, job.curve)])
        ends = np.minimum(np.cumsum([a for a, _ in parts]) / sum(a for a, _ in parts) * job.steps, work[j])
        rest, curves = np.diff(ends, prepend=0.0).tolist(), [curve for _, curve in parts]
        usable = range(job.least_nodes, min(job.most_nodes, 14) + 1)
        best = sum(w / max(curve(n) for n in usable) for w, curve in zip(rest, curves, strict=True))
        useful = sum(w / curve(job.least_nodes) * job.least_nodes for w, curve in zip(rest, curves, strict=True))
        met = sum(max(min(s.end[j], e) - max(job.arrival_time, a), 0.0) for a, e in zip(s.arrival, s.end, strict=True))
        share = min(max(14 / (met / (s.end[j] - job.arrival_time)), usable[0]), usable[-1])
        shared.append(sum(w / curve(share) for w, curve in zip(rest, curves, strict=True)))
        held, starts, own = 0.0, 0, s.history[s.history[:, 1] == j]
        for (time, _, n), (after, *_) in pairwise(own.tolist()):
            held, starts = held + n * (after - time), starts + (n > 0)
            left = max(after - time - (0.7 if starts == 1 else 1.5), 0.0)
            for i, curve in enumerate(curves if n else ()):
                speed = curve(n) * (1.0 if packed[time, j] else 0.6)
                passed = min(left, rest[i] / speed)
                rest[i], left = rest[i] - passed * speed, left - passed
        assert rest == pytest.approx([0] * len(rest), abs=1e-9)
        assert left < 1e-9
        row = {
            "name": job.name, "kind": job.kind, "arrival_time": job.arrival_time, "first_start": own[0, 0],
            "end": own[-1, 0], "response_time": own[-1, 0] - job.arrival_time,
            "mean_nodes": held / (own[-1, 0] - own[0, 0]), "attained_service": held, "restarts": starts - 1,
            "failures": 0, "early_end": bool(s.early[j]),
        }  # fmt: skip
        assert s.to_rows()[j] == {k: v if isinstance(v, str) else pytest.approx(v) for k, v in row.items()}
        assert (s.best_time[j], s.useful_service[j]) == pytest.approx((best, useful))
    assert s.shared_time == pytest.approx(shared)
    assert s.restarts.sum() > 0 or isinstance(policy, qs.Backfill)
    R, rows = (s.end - s.arrival)[7:], s.to_rows()  # three tenths of 24 are left out
    slow, makespan = R / s.best_time[7:], s.end.max()
    assert s.summary() == pytest.approx({
        "mean_response_time": R.mean(), "median_response_time": np.median(R), "p95_response_time": np.quantile(R, 0.95),
        "p99_response_time": np.quantile(R, 0.99), "mean_slowdown": slow.mean(),
        "p95_slowdown": np.quantile(slow, 0.95),
        "mean_queueing_delay": (s.start - s.arrival)[7:].mean(), "makespan": makespan,
        "utilization": sum(row["attained_service"] for row in rows) / makespan / 14,
        "efficiency": s.useful_service.sum() / s.attained_service.sum(), "mean_restarts": s.restarts[7:].mean(),
        "worst_fairness": max(R / shared[7:]),
    })  # fmt: skip
    told = s.to_dict()
    about = [told.pop(name) for name in ("policy", "nodes", "jobs", "warmup_jobs", "seed", "records")]
    assert about == [policy.name, 14, 24, 7, seed, rows]
    assert told == s.summary()


@pytest.mark.parametrize("p", [0.2, 0.5, 0.8])
def test_hesrpt_divided_is_its_closed_form(p):
    """Least mean of jobs present at once with speed nodes ** p (Berg, Vesilo and Harchol-Balter, 2020)."""
    sizes, k, q = np.random.default_rng(3).lognormal(0, 1.5, 12), np.arange(1, 13), 1 / (1 - p)
    least = np.sort(sizes)[::-1] @ (k**q - (k - 1) ** q) ** (1 / q) / 7**p / 12
    jobs = [qs.ClusterJob(f"{i}", arrival_time=0, steps=x, curve=qs.PowerLawCurve(p)) for i, x in enumerate(sizes)]
    for policy in (qs.HeSRPT(p, divisible=True), qs.HeSRPT(divisible=True)):
        assert qs.schedule(jobs, policy, nodes=7).mean_response_time == pytest.approx(least)
    for worse in (qs.HeSRPT(p + 0.05, divisible=True), qs.EqualShare(divisible=True)):
        assert qs.schedule(jobs, worse, nodes=7).mean_response_time > least * (1 + 1e-6)


def test_what_is_left_out_of_a_policy_or_a_job():
    for told in (
        "FIFO(fixed=None)", "LeastAttainedService(thresholds=(57600.0,))", "EqualShare(divisible=False)",
        "HeSRPT(exponent=None, divisible=False)", "GreedyGain(floor=0.5, power=1.0)",
        "ModelBased(order='shortest', grant='efficient', threshold=0.5)", "RankPriced(exponent=0.5, floor=0.0)",
    ):  # fmt: skip
        assert repr(getattr(qs, told.partition("(")[0])()) == told
    limits = {"least_nodes": 2, "most_nodes": 5, "requested_nodes": 3, "end_probability": 0.25}
    kinds = [
        qs.JobKind("a", curve=float, steps=7.0, variation=0, **limits),
        qs.JobKind("b", curve={1: 2.0, 6: 3.0}, steps=1.0),
    ]
    first, second = ({job.kind: job for job in qs.Stream(kinds, jobs=40, nodes=9).workload(1)}[name] for name in "ab")
    assert {name: getattr(first, name) for name in limits} == limits
    assert (first.steps, first.curve(4), first.predicted) == (7.0, 4.0, None)
    assert (second.least_nodes, second.most_nodes, second.requested, second.end_probability) == (1, 6, 1, 0.0)
