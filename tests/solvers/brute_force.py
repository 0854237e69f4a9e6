"""A judge that shares nothing with the package's chain: every customer in one list per place, a dense generator, GTH.

A state holds for each place its customers in the order in which they came, each with class and phase. Nothing is left
out beforehand: who leaves is followed, visit by visit, until somewhere takes time, and every order of customers at the
start is tried.
"""

import math

import numpy as np

import queuemodel as qm


def judge(network, population):
    """Queue lengths (K, C) and throughputs (C,) of classes, or None where they depend on the start."""
    chain = Chain(network, population)
    answers = [chain.measures(members) for members in closed_sets(chain.rates)]
    Q, X = answers[0]
    return None if any(np.abs(q - Q).max() > 1e-6 or (np.abs(x - X) > 1e-6 * X).any() for q, x in answers) else (Q, X)


def closed_sets(rates):
    """Sets of states that reach each other and nothing else."""
    reach = ((rates > 0) | np.eye(len(rates), dtype=bool)).astype(np.float32)
    while not np.array_equal(reach, further := np.minimum(reach @ reach, 1.0)):
        reach = further
    closed = {tuple(np.flatnonzero(row).tolist()) for row in reach}
    return [list(s) for s in closed if reach[np.ix_(s, s)].all()]


def stationary(rates):
    """Grassmann, Taksar and Heyman (1985): elimination without a subtraction."""
    A = rates.copy()
    np.fill_diagonal(A, 0.0)
    n = len(A)
    for m in range(n - 1, 0, -1):
        A[:m, m] /= A[m, :m].sum()
        A[:m, :m] += np.outer(A[:m, m], A[m, :m])
    pi = np.ones(n)
    for m in range(1, n):
        pi[m] = pi[:m] @ A[:m, m]
    return pi / pi.sum()


def with_place(state, k, here):
    return (*state[:k], here, *state[k + 1 :])


class Chain:
    """All states, from all starts."""

    def __init__(self, network, population):
        self.network, self.stations = network, network.stations
        self.names, self.K = network.class_names or [None], len(network.stations)
        self.V = np.reshape(network.visit_ratios, (self.K, -1))
        self.S = np.reshape(network.service_times, (self.K, -1))
        self.Z = np.broadcast_to(network.think_times, self.V.shape[1:])
        self.ref = network.names.index(network.reference or network.names[0])
        self.shapes = {}
        crowd = [chain for chain in network.chains for _ in range(sum(population[c] for c in chain))]
        level = {(((),) * (self.K + 1), tuple(crowd))}
        for _ in crowd:
            level = {
                (self.tidy(after), (*waiting[:w], *waiting[w + 1 :]))
                for state, waiting in level
                for w in range(len(waiting))
                for c, k in self.stays(waiting[w])
                for _, after in self.arrive(state, k, c)
            }
        self.number = {state: i for i, state in enumerate(sorted({state for state, _ in level}, key=repr))}
        todo, edges, self.flows = list(self.number), [], []
        while todo:
            state = todo.pop()
            for rate, after, left in self.moves(state):
                after = self.tidy(after)
                if after not in self.number:
                    self.number[after] = len(self.number)
                    todo.append(after)
                edges.append((self.number[state], self.number[after], rate))
                if left:
                    self.flows.append((self.number[state], *left, rate))
        self.rates = np.zeros((len(self.number),) * 2)
        for i, j, rate in edges:
            self.rates[i, j] += rate * (i != j)

    def measures(self, members):
        pi = np.zeros(len(self.number))
        pi[members] = stationary(self.rates[np.ix_(members, members)])
        Q, flow = np.zeros((self.K + 1, len(self.Z))), np.zeros((self.K + 1, len(self.Z)))
        for state, i in self.number.items():
            for k, here in enumerate(state):
                for c, _ in here:
                    Q[k, c] += pi[i]
        for i, k, c, rate in self.flows:
            flow[k, c] += pi[i] * rate
        X = np.zeros(len(self.Z))
        for chain in self.network.chains:
            c, k = self.stays(chain)[0]
            thought = self.V[self.ref, c] if self.network.routing else 1.0
            X[list(chain)] = flow[k, c] / (self.V[k, c] if k < self.K else thought)
        timed = self.S > 0
        np.testing.assert_allclose(flow[:-1][timed], (X * self.V)[timed], rtol=1e-6, atol=1e-9)
        return Q[:-1], X

    def shape(self, k, c):
        if (k, c) not in self.shapes:
            station, name = (None, None) if k == self.K else (self.stations[k], self.names[c])
            if station is None:
                shape = qm.PhaseType.exponential(self.Z[c])
            else:
                shape = station.distribution_of(name) or qm.PhaseType.from_moments(
                    mean=self.S[k, c], scv=station.scv_of(name)
                )
            T = np.array(shape.T)
            self.shapes[k, c] = shape.alpha, np.hstack([T, -T.sum(axis=1, keepdims=True)])
        return self.shapes[k, c]

    def unordered(self, k):
        return self.delays(k) or self.stations[k].discipline == "ps"

    def delays(self, k):
        return k == self.K or self.stations[k].servers == math.inf

    def tidy(self, state):
        return tuple(tuple(sorted(here)) if self.unordered(k) else here for k, here in enumerate(state))

    def stays(self, chain):
        """(class, place) that the chain's customers come to and spend time at."""
        thinks = [(c, self.K) for c in chain if self.Z[c] > 0 and (not self.network.routing or self.V[self.ref, c] > 0)]
        return [(c, k) for c in chain for k in range(self.K) if self.V[k, c] > 0 and self.S[k, c] > 0] + thinks

    def arrive(self, state, k, c):
        """Everybody has from the start the phase that his service begins with: the same law as drawing it then."""
        for phase, p in enumerate(self.shape(k, c)[0]):
            if p > 0:
                yield p, with_place(state, k, (*state[k], (c, phase)))

    def speed(self, k, at, n):
        """How fast the customer at a position is served."""
        if self.delays(k):
            return 1.0
        station = self.stations[k]
        total = station.rate(n)
        if station.discipline == "ps":
            return total / n
        m = 1 if station.rates is not None else min(n, station.servers)
        served = at < m if station.discipline == "fcfs" else at >= n - m
        return total / m if served else 0.0

    def moves(self, state):
        """Rate, next state, and (place, class) that was left."""
        for k, here in enumerate(state):
            for at in range(len(here)):
                yield from self.steps(state, k, at, self.speed(k, at, len(here)))

    def steps(self, state, k, at, speed):
        """What the service of a customer does next."""
        here = state[k]
        c, i = here[at]
        rates = self.shape(k, c)[1][i]
        for j, rate in enumerate(rates):
            if j == i or rate * speed <= 1e-12:
                continue
            if j < len(rates) - 1:
                yield rate * speed, with_place(state, k, (*here[:at], (c, j), *here[at + 1 :])), None
                continue
            gone = with_place(state, k, (*here[:at], *here[at + 1 :]))
            yield rate * speed, state, (k, c)
            for (d, to), p in self.settle(k, c).items():
                for q, after in self.arrive(gone, to, d):
                    yield rate * speed * p * q, after, None

    def settle(self, k, c):
        """Where who leaves ``k`` as class ``c`` takes time next: probabilities of (class, place)."""
        ends, paths = {}, {(c, k): 1.0}
        while paths:
            following = {}
            for (d, j), weight in paths.items():
                for p, e, i in self.after(j, d):
                    takes = (self.Z[e] if i == self.K else self.S[i, e]) > 0
                    target = ends if takes else following
                    target[e, i] = target.get((e, i), 0.0) + weight * p
            paths = {s: w for s, w in following.items() if w > 1e-14}
        return ends

    def after(self, k, c):
        """Where class ``c`` goes from place ``k``: probability, class and place."""
        if self.network.routing is None:  # in order, or anywhere in proportion to visits
            visits = [*self.V[:, c], 1.0]
            if set(visits) <= {0.0, 1.0}:
                stops = [j for j, v in enumerate(visits) if v]
                return [(1.0, c, stops[(stops.index(k) + 1) % len(stops)])]
            return [(v / sum(visits), c, j) for j, v in enumerate(visits) if v]
        if k == self.K:
            return [(1.0, c, self.ref)]
        routing = self.network.routing
        if not isinstance(routing, dict):
            routing = {(name, name): routing for name in self.names}
        pairs = [(P[k], self.names.index(e)) for (s, e), P in routing.items() if s == self.names[c]]
        found = [(p, d, j) for row, d in pairs for j, p in enumerate(row) if p]
        return [(p, d, self.K if j == self.ref and self.Z[d] > 0 else j) for p, d, j in found]
