"""Links between versions, against sets of all successors."""

from __future__ import annotations

from random import Random

import numpy as np

from mussurana.verifier.engine.arrays import group_by
from mussurana.verifier.engine.versions import link_lists, link_updates, trace_chains
from tests.engine.twins import covers


@covers(link_updates)
def test_a_version_is_linked_to_the_only_one_whose_writer_read_it() -> None:
    clashes = linked = 0
    for seed in range(2000):
        rng = Random(seed)
        key_count, txn_count = rng.randint(1, 3), rng.randint(1, 6)
        installed = [
            (key, txn) for key in range(key_count) for txn in range(txn_count) if rng.random() < rng.choice((0.3, 0.8))
        ]
        version_key = [*range(key_count), *(key for key, _ in installed)]
        version_txn = [*[-1] * key_count, *(txn for _, txn in installed)]
        versions = range(len(version_key))
        is_new = [txn >= 0 and rng.random() < 0.05 for txn in version_txn]
        # A transaction reads at most one version of a key from outside; the same one perhaps more than once.
        reads = []
        for txn in range(txn_count):
            for key in range(key_count):
                others = [v for v in versions if version_key[v] == key and version_txn[v] != txn]
                if rng.random() < 0.5:
                    reads += [(txn, rng.choice(others))] * rng.randint(1, 2)
        rng.shuffle(reads)
        read_txn = np.array([txn for txn, _ in reads], np.int32)
        read_start, read_order = group_by(np.array([v for _, v in reads], np.int32), len(versions))
        following, clash = np.full(len(versions), -1, np.int32), np.full(5, -1, np.int64)
        link_updates(
            np.array(version_key, np.int32), np.array(version_txn, np.int32), np.array(is_new), key_count,
            read_start, read_order, read_txn, following, clash,
        )  # fmt: skip

        successors = {
            v: {
                key_count + i
                for i, (key, txn) in enumerate(installed)
                if key == version_key[v] and (txn, v) in reads and key_count + i != v and not is_new[key_count + i]
            }
            for v in versions
        }
        if any(len(after) > 1 for after in successors.values()):
            version, *after = clash[:3].tolist()
            assert len(set(after)) == 2
            assert set(after) <= successors[version]
            clashes += 1
        else:
            assert clash.tolist() == [-1] * 5
            assert following.tolist() == [min(successors[v], default=-1) for v in versions]
            linked += any(successors.values())
    assert min(clashes, linked) > 250


@covers(link_lists)
def test_neighbours_in_lists_are_linked_unless_lists_disagree() -> None:
    clashes = linked = 0
    for seed in range(2000):
        rng = Random(seed)
        key_count = rng.randint(1, 3)
        per_key = rng.randint(1, 5)
        version_count = key_count * (1 + per_key)
        lists = []
        for _ in range(rng.randint(0, 5)):
            key = rng.randrange(key_count)
            whole = [key_count + key * per_key + i for i in range(per_key)]
            if rng.random() < 0.3:
                rng.shuffle(whole)
            lists.append((key, whole[: rng.randint(0, per_key)]))
        start = np.array([0, *np.cumsum([len(shown) for _, shown in lists])], np.int64)
        following, followed_by = (np.full(version_count, -1, np.int32) for _ in range(2))
        clash = np.full(5, -1, np.int64)
        elements = np.array([v for _, shown in lists for v in shown], np.int32)
        link_lists(start, elements, np.array([key for key, _ in lists], np.int32), following, followed_by, clash)

        shown_by: dict[tuple[int, int], list[int]] = {}
        for i, (key, shown) in enumerate(lists):
            for link in zip([key, *shown], shown, strict=False):
                shown_by.setdefault(link, []).append(i)
        if len({before for before, _ in shown_by}) < len(shown_by):
            version, one, other, by_one, by_other = clash.tolist()
            assert one != other
            assert by_one in shown_by[version, one]
            assert by_other in shown_by[version, other]
            clashes += 1
        else:
            assert clash.tolist() == [-1] * 5
            assert {(v, int(after)) for v, after in enumerate(following) if after >= 0} == set(shown_by)
            assert all(int(followed_by[v]) in by for (v, _), by in shown_by.items())
            linked += bool(shown_by)
    assert min(clashes, linked) > 250


def test_no_version_follows_two_others_whatever_lists_and_updates_say() -> None:
    """Whoever walks along the links would never come to an end."""
    contradicted = 0
    for seed in range(500):
        rng = Random(seed)
        count = rng.randint(2, 6)  # versions of one key that 0 .. count - 1 install, after the initial one
        shown = rng.sample(range(1, count + 1), rng.randint(0, count))
        claims = {txn: v for txn in range(count) if rng.random() < 0.5 and (v := rng.randint(0, count)) != txn + 1}
        following, followed_by = (np.full(count + 1, -1, np.int32) for _ in range(2))
        clash = np.full(5, -1, np.int64)
        ends = np.array([0, len(shown)], np.int64)
        link_lists(ends, np.array(shown, np.int32), np.zeros(1, np.int32), following, followed_by, clash)
        by_list = following.copy()
        read_start, read_order = group_by(np.array(list(claims.values()), np.int32), count + 1)
        version_key = np.zeros(count + 1, np.int32)
        version_txn = np.arange(-1, count, dtype=np.int32)
        link_updates(
            version_key, version_txn, np.zeros(count + 1, bool), 1,
            read_start, read_order, np.array(list(claims), np.int32), following, clash,
        )  # fmt: skip
        targets = following[following >= 0].tolist()
        assert len(set(targets)) == len(targets)
        assert (following[by_list >= 0] == by_list[by_list >= 0]).all()
        contradicted += clash[0] < 0 and any(following[v] != txn + 1 for txn, v in claims.items())
        room = np.empty(count + 1, np.int32)
        if clash[0] < 0:
            trace_chains(count + 1, following, room, room.copy())
    assert contradicted > 50


@covers(trace_chains)
def test_chains_lead_from_versions_without_predecessor_to_versions_without_successor() -> None:
    for seed in range(1000):
        rng = Random(seed)
        version_count = rng.randint(1, 12)
        key_count = rng.randint(1, version_count)
        # Each version has at most one predecessor, initial ones have none; rings may occur.
        following = np.full(version_count, -1, np.int32)
        targets = list(range(key_count, version_count))
        rng.shuffle(targets)
        for v, after in zip(rng.sample(range(version_count), version_count), targets, strict=False):
            if rng.random() < 0.7 and after != v:
                following[v] = after
        head, tail = np.empty(version_count, np.int32), np.empty(version_count, np.int32)
        count = trace_chains(version_count, following, head, tail)
        expected = []
        for v in range(version_count):
            if v not in following.tolist():
                end = v
                while following[end] >= 0:
                    end = int(following[end])
                expected.append((v, end))
        assert list(zip(head[:count].tolist(), tail[:count].tolist(), strict=True)) == expected
