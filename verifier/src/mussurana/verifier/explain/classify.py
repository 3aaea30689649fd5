"""Names for cycles, in the words of Adya's thesis and of Elle.

A cycle is named by its weakest link: only write orders (G0), reads of what was written (G1c), one anti-dependency
(G-single), more of them (G2-item). Where session order or real time was needed to close it, the name says so.
"""

from __future__ import annotations

from collections.abc import Sequence

from mussurana.verifier.verdict import Step


def classify(steps: Sequence[Step], since: Sequence[Step] = ()) -> tuple[str, str]:
    """(a name that people know, Adya's name) of a cycle; `since` is what the order of its writes rests on."""
    kinds = [step.kind for step in steps]
    against = kinds.count("rw")
    if against == 0:
        adya = "G1c" if "wr" in kinds else "G0"
        plain = "circular information flow" if adya == "G1c" else "dirty write"
    elif against == 1:
        adya, plain = "G-single", "read skew"
    else:
        adya, plain = "G2-item", "anti-dependency cycle"
    needed = {*kinds, *(step.kind for step in since)}
    if needed & {"session", "epoch", "realtime"}:
        adya += "-realtime" if "realtime" in needed else "-session"
        inverted = "real time inverted" if "realtime" in needed else "session order broken"
        plain = "stale read" if against == 1 else inverted if against == 0 else plain
    if {"session", "epoch", "realtime"} & set(kinds):
        return plain, adya
    keys = {step.key for step in steps}
    if len(steps) == 2 and against >= 1 and len(keys) == 1 and "wr" not in kinds:
        return "lost update", adya
    if kinds == ["rw", "rw"]:
        return "write skew", adya
    if len(steps) == 4 and kinds in (["wr", "rw"] * 2, ["rw", "wr"] * 2):
        return "long fork", adya
    return plain, adya


def mildest(names: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """Of several cases that cover all possibilities, the name that holds whichever is true."""
    severity = ["G2-item", "G-single", "G1c", "G0"]

    def rank(name: tuple[str, str]) -> tuple[int, int]:
        base = name[1].removesuffix("-session").removesuffix("-realtime")
        return (0 if base == name[1] else -1), severity.index(base)

    return min(names, key=rank)
