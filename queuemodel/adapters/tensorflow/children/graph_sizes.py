"""Sizes of the tensors in a TensorFlow graph, as far as their shapes are known beforehand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

BODIES = ("then_branch", "else_branch", "body", "cond", "f")  # attributes that name a function


def graph_sizes(graphs: Sequence[Any]) -> dict[str, dict[str, Any]]:
    """
    What `reading.tensor_sizes` wants to know of the training step's graphs and of the functions in them.

    Returns
    -------
    dict
        ``outputs``: by operation, the bytes of each output that is used; ``arguments``: by operation, the bytes of
        what it gets from outside its function. None where they are not known, or where two operations of one name
        differ.
    """
    outputs: dict[str, Any] = {}
    arguments: dict[str, Any] = {}
    for graph in _with_bodies(graphs):
        for operation in graph.get_operations():
            used = [t for t in operation.outputs if t.consumers()] or operation.outputs
            _note(outputs, operation.name, [_bytes(t) for t in used])
            given = {_bytes(t) for t in operation.inputs if t.op.type == "Placeholder" and t.dtype.name != "resource"}
            if given:
                _note(arguments, operation.name, given.pop() if len(given) == 1 else None)
    return {"outputs": outputs, "arguments": arguments}


def _with_bodies(graphs: Sequence[Any]) -> Iterator[Any]:
    rest, seen = list(graphs), set()
    while rest:
        graph = rest.pop()
        yield graph
        find = getattr(graph, "_get_function", lambda name: None)  # TensorFlow has no public way
        for operation in graph.get_operations():
            for attribute in BODIES:
                try:
                    name = operation.get_attr(attribute).name
                except (ValueError, AttributeError):
                    continue
                body = getattr(find(name), "graph", None)
                if body is not None and name not in seen:
                    seen.add(name)
                    rest.append(body)


def _note(table: dict[str, Any], name: str, value: Any) -> None:
    table[name] = value if table.get(name, value) == value else None


def _bytes(tensor: Any) -> int | None:
    known = tensor.shape.is_fully_defined() and tensor.dtype.name not in ("resource", "variant", "string")
    return tensor.dtype.size * tensor.shape.num_elements() if known else None
