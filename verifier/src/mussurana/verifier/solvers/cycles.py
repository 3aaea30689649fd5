"""A topological order, or what closes a cycle: for the solvers that guess first and look for cycles then."""

from __future__ import annotations


def sort_or_cycle(successors: list[list[tuple[int, tuple[int, ...]]]]) -> tuple[list[int], set[int]]:
    """A topological order, or the guards on a cycle. Known edges alone are acyclic, so a cycle has guards."""
    state = [0] * len(successors)  # 0 new, 1 on the path, 2 done
    order: list[int] = []
    for root in range(len(successors)):
        if state[root]:
            continue
        path: list[tuple[int, int, tuple[int, ...]]] = [
            (root, 0, ())
        ]  # (node, next successor, guards of the edge to it)
        state[root] = 1
        while path:
            node, at, entered_by = path.pop()
            if at == len(successors[node]):
                state[node] = 2
                order.append(node)
                continue
            path.append((node, at + 1, entered_by))
            target, guards = successors[node][at]
            if state[target] == 1:
                cycle = set(guards)
                for on_path, _, entered in reversed(path):
                    if on_path == target:
                        break
                    cycle |= set(entered)
                return [], cycle
            if state[target] == 0:
                state[target] = 1
                path.append((target, 0, guards))
    return order[::-1], set()
