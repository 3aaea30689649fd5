"""Whose a recording is: by what it says, and what becomes of those that do not say it or are not certain."""

from __future__ import annotations

from pathlib import Path

import pytest

from mussurana.collector.abandoned import complete
from mussurana.collector.settings import Settings
from mussurana.collector.spool import make_folder
from mussurana.collector.which_database import NOT_KNOWN_YET, RecordedDatabase, key_value_database, postgres_database
from mussurana.verifier.formats.spool import NOT_KNOWN, recordings
from mussurana.wire import PROTOCOL, history_pb2, segments

ONE, OTHER = "postgresql:71/16384", "postgresql:71/16385"
PLACE, OTHER_PLACE = "postgresql:@a:5432/16384", "postgresql:@b:5432/16384"


def record(spool: Path, identity: str, letter: str, in_fragment: bool = False) -> None:
    folder = spool / f"{letter.encode().hex() * 16}-{ord(letter):08x}"
    folder.mkdir(parents=True)
    database = history_pb2.Database(identity=identity, name=f"the {identity}" if identity else "")
    hello = history_pb2.Hello(protocol=PROTOCOL, collector=letter.encode() * 16, first_sequence=1)
    fragment = history_pb2.Fragment(sequence=1, sealed_ns=1)
    (fragment.database if in_fragment else hello.recorded).CopyFrom(database)
    appender = segments.Appender(folder, 1 << 20)
    appender.append(
        [history_pb2.Upload(hello=hello).SerializeToString(), history_pb2.Upload(fragment=fragment).SerializeToString()]
    )
    appender.close()


def found(spool: Path) -> list[tuple[str, int, bool]]:
    return [(each.identity, len(each.folders), each.is_all) for each in recordings(spool)]


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ([""], [("", 1, True)]),
        (["", ""], [("", 2, True)]),
        ([ONE, ONE], [(ONE, 2, True)]),
        ([ONE, ""], [(ONE, 2, True)]),  # as before anybody told
        ([ONE, OTHER], [(ONE, 1, True), (OTHER, 1, True)]),
        ([ONE, OTHER, ""], [(ONE, 1, False), (OTHER, 1, False), ("", 1, False)]),
        ([ONE, PLACE], [(ONE, 2, True)]),
        ([ONE, PLACE, OTHER_PLACE], [(ONE, 3, True)]),
        ([PLACE, OTHER_PLACE], [(PLACE, 1, False), (OTHER_PLACE, 1, False)]),
        ([OTHER, PLACE], [(OTHER, 1, True), (PLACE, 1, True)]),
        ([ONE, "postgresql:72/16384", PLACE], [(ONE, 1, False), ("postgresql:72/16384", 1, False), (PLACE, 1, False)]),
    ],
)
def test_recordings_are_put_together_by_database(
    told: list[str], expected: list[tuple[str, int, bool]], tmp_path: Path
) -> None:
    for number, identity in enumerate(told):
        record(tmp_path, identity, "abcdef"[number])
    assert sorted(found(tmp_path)) == sorted(expected)


def test_one_whose_hello_does_not_tell_is_known_by_its_fragments(tmp_path: Path) -> None:
    record(tmp_path, ONE, "a", in_fragment=True)
    record(tmp_path, OTHER, "b", in_fragment=True)
    record(tmp_path, "", "c")
    assert [each.name for each in recordings(tmp_path)] == [f"the {ONE}", f"the {OTHER}", NOT_KNOWN]


@pytest.mark.parametrize("database", [NOT_KNOWN_YET, key_value_database("redis/0")])
def test_a_process_that_was_killed_before_it_said_anything_has_said_so_in_its_folder(
    database: RecordedDatabase, tmp_path: Path
) -> None:
    folder, lock = make_folder(Settings.load(spool=str(tmp_path / "spool")), b"a" * 16, 5, database)
    assert complete(folder) == 1
    (recorded,) = recordings(tmp_path / "spool")
    assert recorded.identity == database.identity
    assert lock >= 0


def test_names_are_for_people_and_servers_for_machines() -> None:
    known = postgres_database(("71", "16384"), "db.example", "5432", "shop")
    assert known == (ONE, "postgresql://db.example:5432/shop")
    here = {postgres_database(("", "16384"), host, "5432", "shop") for host in ("localhost", "127.0.0.1", "::1", "")}
    assert len({identity for identity, _ in here}) == 1
    assert postgres_database(("", "1"), "/run/a", "5432", "x") != postgres_database(("", "1"), "/run/b", "5432", "x")
    assert postgres_database(("", "1"), "/run/a", "5432", "shop").name == "postgresql:///shop"
    assert len(key_value_database("x" * 10_000).identity) == 500
    assert key_value_database("\udcff").identity == "key-value:/\\udcff"
