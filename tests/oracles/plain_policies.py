"""Who gets which nodes, by the words of the policies: plain loops over jobs and nodes."""

from itertools import pairwise

import numpy as np


def corners(X, floor):
    """Nodes where a curve {nodes: speed} touches its least concave majorant, up to its fastest."""
    least, fastest = min(X), max(X, key=X.get)
    usable = {n: x for n, x in X.items() if n == least or x / n >= floor * X[least] / least}
    fastest = max(usable, key=usable.get)
    at = {0: 0.0} | {n: x for n, x in usable.items() if n <= fastest}
    return [n for n in at if n and all(at[n] >= at[a] + (at[b] - at[a]) * (n - a) / (b - a)
                                       for a in at for b in at if a < n < b)]  # fmt: skip


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
    gains = [[(b, (x[b] - x.get(a, 0.0)) / (b - a)) for a, b in pairwise([0, *own])]
             for x, own in zip(X, at, strict=True)]  # fmt: skip
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
        keys = {"arrival": list(first), "shortest": service, "gain": np.multiply(service, wanted).tolist()}
        return in_turn(sorted(first, key=keys[policy.order].__getitem__), least, wanted, nodes)
    if match == "HeSRPT":
        fits = [[(n, x[n]) for n in x if n <= b] for x, b in zip(X, best, strict=True)]
        powers = [np.clip(np.polyfit(*np.log(np.transpose(own)), 1)[0], 0.01, 0.99) if len(own) > 1 else 0.01
                  for own in fits]  # fmt: skip
        q = 1 / (1 - (np.mean(powers) if policy.exponent is None else policy.exponent))
        falling = sorted(first, key=lambda j: -left[j] / X[j][least[j]])
        share = {j: ((k / m) ** q - ((k - 1) / m) ** q) * nodes for k, j in enumerate(falling, start=1)}
        wanted = [min(max(int(share[j] + 1e-9), least[j]), best[j]) for j in first]
        granted = in_turn(falling[::-1], least, wanted, nodes)
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
