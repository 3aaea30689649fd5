"""The order of versions that the history itself reveals (Cobra 4.3.1, "combining writes").

A transaction that reads a version of a key and then writes the key comes right after that version's writer: no
other write can stand between them, or its read would have been different (serializability) or two overlapping
transactions would have written one key (snapshot isolation). Not so if it began a row there, which needs another one
to have deleted what it read. The same holds for lists, whose readers show the
order of appends. Such links join versions into *chains*; only the order between the chains of a key is open. The chain
that holds the initial version comes first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mussurana.verifier.engine.arrays import group_by
from mussurana.verifier.history import Ints, SmallInts
from mussurana.verifier.kernels import kernel


@dataclass(frozen=True)
class VersionChains:
    following: SmallInts  # per version: the version known to come right after it, or -1
    shown_by: SmallInts  # per version: a reader of a list that shows what comes after it, or -1
    chain_head: SmallInts  # per chain: its first version; chains are grouped by key
    chain_tail: SmallInts  # per chain: its last version
    reader_start: Ints  # readers of version v: reader[reader_start[v] : reader_start[v + 1]]
    reader: SmallInts  # transactions
    clash: tuple[int, int, int] | None  # a version and two that both claim to come right after it
    clash_shown_by: tuple[int, ...] = ()  # for lists: the readers that show it


@kernel
def link_updates(version_key, version_txn, version_new, key_count, read_start, read_order, read_txn, following, clash):
    """Link each version to the one that replaced it in a read-modify-write.

    Pre:  reads are grouped by version through read_start and read_order; following is -1, or what lists show.
    Post: following[v] is set for each version whose replacement is known; clash holds a version and its two
          successors if one has two, else -1. No version follows two: where a list shows another one before it than
          its writer replaced, the list's link stays, and the edges of the writer's read contradict it.
    """
    has_previous = np.zeros(len(following), np.uint8)
    for v in range(len(following)):
        if following[v] >= 0:
            has_previous[following[v]] = 1
    txn_count = 0
    for v in range(len(version_txn)):
        txn_count = max(txn_count, version_txn[v] + 1)
    for i in range(len(read_txn)):
        txn_count = max(txn_count, read_txn[i] + 1)
    own_version = np.full(txn_count, -1, np.int64)  # what the transaction installed on the key at hand
    at = key_count
    for key in range(key_count):
        first = at
        while at < len(version_key) and version_key[at] == key:
            if not version_new[at]:
                own_version[version_txn[at]] = at
            at += 1
        if at == first:
            continue
        for position in range(first - 1, at):
            v = key if position < first else position
            for i in range(read_start[v], read_start[v + 1]):
                after = own_version[read_txn[read_order[i]]]
                if after >= 0 and after != v and following[v] != after:
                    if following[v] >= 0:
                        clash[0], clash[1], clash[2] = v, following[v], after
                        return
                    if has_previous[after] == 0:
                        following[v] = after
                        has_previous[after] = 1
        for position in range(first, at):
            own_version[version_txn[position]] = -1


@kernel
def link_lists(list_start, list_version, list_key, following, followed_by, clash):
    """Link the versions that stand side by side in a list that somebody read; the first follows the initial version.

    Post: as `link_updates`; followed_by[v] is the list that showed the link, and clash[3], clash[4] the two lists
          that disagree.
    """
    for i in range(len(list_start) - 1):
        before = list_key[i]
        for at in range(list_start[i], list_start[i + 1]):
            v = list_version[at]
            if following[before] >= 0 and following[before] != v:
                clash[0], clash[1], clash[2] = before, following[before], v
                clash[3], clash[4] = followed_by[before], i
                return
            following[before] = v
            followed_by[before] = i
            before = v


@kernel
def trace_chains(version_count, following, chain_head, chain_tail):
    """Walk each chain from its first version. Returns the number of chains.

    Pre:  no version follows two others.
    Versions whose links form a ring are in no chain; their transactions form a cycle of known edges.
    """
    has_previous = np.zeros(version_count, np.uint8)
    for v in range(version_count):
        if following[v] >= 0:
            has_previous[following[v]] = 1
    count = 0
    for v in range(version_count):
        if has_previous[v] == 0:
            tail = v
            while following[tail] >= 0:
                tail = following[tail]
            chain_head[count] = v
            chain_tail[count] = tail
            count += 1
    return count


def chain_versions(
    version_key: SmallInts,
    version_txn: SmallInts,
    version_new: np.ndarray,
    key_count: int,
    read_txn: SmallInts,
    read_version: SmallInts,
    list_txn: SmallInts,
    list_start: Ints,
    list_version: SmallInts,
    list_key: SmallInts,
) -> VersionChains:
    version_count = len(version_key)
    reader_start, read_order = group_by(read_version, version_count)
    following = np.full(version_count, -1, np.int32)
    followed_by = np.full(version_count, -1, np.int32)
    clash = np.full(5, -1, np.int64)
    if len(list_txn):
        link_lists(list_start, list_version, list_key, following, followed_by, clash)
    if clash[0] < 0:
        link_updates(
            version_key, version_txn, version_new, key_count, reader_start, read_order, read_txn, following, clash
        )
    chain_head = np.empty(version_count, np.int32)
    chain_tail = np.empty(version_count, np.int32)
    shown_by: set[int] = set()
    chain_count = 0
    if clash[0] >= 0:
        shown_by = {int(list_txn[i]) for i in (*clash[3:], followed_by[clash[0]]) if i >= 0}
    else:
        chain_count = trace_chains(version_count, following, chain_head, chain_tail)
    return VersionChains(
        following=following,
        shown_by=np.where(followed_by >= 0, list_txn[followed_by], -1).astype(np.int32)
        if len(list_txn)
        else followed_by,
        chain_head=chain_head[:chain_count],
        chain_tail=chain_tail[:chain_count],
        reader_start=reader_start,
        reader=read_txn[read_order],
        clash=None if clash[0] < 0 else (int(clash[0]), int(clash[1]), int(clash[2])),
        clash_shown_by=tuple(sorted(shown_by)),
    )
