"""The data flow of one traced step: what waited for what."""

from __future__ import annotations

import re
from collections import defaultdict

from ..training.operations import Kind
from .events import RECEIVED, TracedOperation, TracedStep, Transfer

# operations that wait instead of working
WAITING = re.compile(r"NoOp|_?(Host)?(Send|Recv)|(Queue|RandomShuffleQueue)\w*Dequeue\w*|.*TakeGradient|Barrier\w*")


class StepGraph:
    """The data flow of one step: nodes are the operations, then the transfers."""

    def __init__(self, step: TracedStep, worker: str, servers: list[str]) -> None:
        self.where, self.worker, self.servers = step.where, worker, {s: i for i, s in enumerate(servers)}
        self.origin = step.span[0]
        self.operations, self.transfers = step.operations, step.transfers
        self.nodes: list[TracedOperation | Transfer] = [*step.operations, *step.transfers]
        self.payload = sum(1 << i for i, t in enumerate(self.transfers) if self.kind(t) == "push" and t.bytes)
        self.parents = self._parents()
        self.order = self._topological()
        self.ancestors = [0] * len(self.nodes)  # of a node, those that are transfers, as bits
        self.descendants = [0] * len(self.nodes)
        for n in self.order:
            for p in self.parents[n]:
                self.ancestors[n] |= self.ancestors[p] | self._bit(p)
        for n in reversed(self.order):
            for p in self.parents[n]:
                self.descendants[p] |= self.descendants[n] | self._bit(n)

    def _bit(self, node: int) -> int:
        return 1 << (node - len(self.operations)) if node >= len(self.operations) else 0

    def _parents(self) -> list[list[int]]:
        executions: dict[tuple[str, str], list[int]] = defaultdict(list)
        for i, o in enumerate(self.operations):
            executions[o.name, o.task].append(i)
        received: dict[tuple[str, str], list[int]] = defaultdict(list)
        for i, t in enumerate(self.transfers, len(self.operations)):
            received[t.tensor, t.destination].append(i)

        def latest(candidates: list[int], before: int, user: int) -> list[int]:
            """Loops execute one node many times: the last execution that had ended."""
            if len(candidates) < 2:
                return candidates
            ended = [c for c in candidates if self.nodes[c].end <= before and c != user]
            return [max(ended, key=lambda c: self.nodes[c].end)] if ended else []

        parents = []
        for i, o in enumerate(self.operations):
            found: set[int] = set()
            for text in o.inputs:
                if (text, o.task) in executions:
                    found.update(latest(executions[text, o.task], o.start, i))
                elif match := RECEIVED.match(text):
                    key = match["tensor"], o.task
                    arrived = received.get(key, [])  # the same name may also bring a control message
                    in_time = [t for t in arrived if self.nodes[t].end <= o.start]
                    found.update(in_time or arrived or executions.get(key, []))
            parents.append(sorted(found - {i}))
        for t in self.transfers:
            parents.append(latest(executions.get((t.tensor, t.source), []), t.end, -1))
        return parents

    def _topological(self) -> list[int]:
        """Parents before children; an edge that closes a cycle is cut."""
        order, state = [], [0] * len(self.nodes)
        for root in range(len(self.nodes)):
            stack = [(root, False)]
            while stack:
                node, done = stack.pop()
                if done:
                    order.append(node)
                    state[node] = 2
                elif state[node] == 0:
                    state[node] = 1
                    self.parents[node] = [p for p in self.parents[node] if state[p] != 1]
                    stack.append((node, True))
                    stack.extend((p, False) for p in self.parents[node] if state[p] == 0)
        return order

    def kind(self, t: Transfer) -> Kind | None:
        """Fetch or push; None between servers (small change, such as an optimizer's step count)."""
        return "fetch" if t.destination == self.worker else "push" if t.source == self.worker else None

    def parameters(self) -> dict[tuple[str, str], int]:
        """Bytes of each fetched parameter, by server and name: a parameter read twice counts once."""
        made = {(o.name, o.task): o for o in self.operations}
        sizes: dict[tuple[str, str], int] = {}
        for t in self.transfers:
            if self.kind(t) == "fetch" and t.bytes:
                name, seen = t.tensor, set()
                while (o := made.get((name, t.source))) and o.inputs and name not in seen:
                    seen.add(name)
                    name = o.inputs[0]
                sizes[t.source, name] = max(t.bytes, sizes.get((t.source, name), 0))
        return sizes

    def computes(self, node: int) -> bool:
        """Whether an operation is the worker's, and works."""
        o = self.operations[node]
        return o.task == self.worker and not WAITING.fullmatch(o.op)

    def updates(self, node: int) -> bool:
        """Whether a server's operation works on what the worker sent."""
        if self.operations[node].task == self.worker:
            return False
        return self.ancestors[node] & self.payload != 0 and not WAITING.fullmatch(self.operations[node].op)
