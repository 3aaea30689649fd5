"""A daemon is about one database: the first that it hears of, for good, or the one that its configuration names."""

from __future__ import annotations

import json
from pathlib import Path

import grpc
import pytest

from mussurana.verifier.daemon import audited
from mussurana.verifier.daemon.audited import Audited, AuditedError
from mussurana.verifier.daemon.service import StartError
from mussurana.verifier.render.daemon import status_text
from mussurana.wire import PROTOCOL
from mussurana.wire.databases import are_two, may_be_one
from mussurana.wire.history_pb2 import Database, Fragment, Hello, Upload
from tests.daemon.collector import TestCollector, fragment
from tests.daemon.conftest import Running, running
from tests.daemon.watching import page, until

SHOP = Database(identity="postgresql:71/16384", name="postgresql://db:5432/shop")
BOOKS = Database(identity="postgresql:71/16385", name="postgresql://db:5432/books")
SOMEWHERE = Database(identity="postgresql:@db:5432/16384", name="postgresql://db:5432/shop")
NOT_TOLD = Database()


class Teller(TestCollector):
    """A collector that says in its Hello which database it records, or does not."""

    __test__ = False

    def __init__(self, daemon: Running, recorded: Database, letter: str = "a") -> None:
        super().__init__(daemon.address, letter.encode() * 16, say_hello=False)
        hello = Hello(protocol=PROTOCOL, collector=self.id, name=letter, first_sequence=1, recorded=recorded)
        self.send_bytes(Upload(hello=hello).SerializeToString())
        self.durable = next(self.answers).welcome.durable_sequence

    def tell(self, told: Database = NOT_TOLD) -> None:
        made = fragment(self.durable + 1)
        if told.identity:
            made.database.CopyFrom(told)
        self.send(made)
        self.wait_durable(self.durable + 1)


def refused(daemon: Running, recorded: Database, told: Database = NOT_TOLD, letter: str = "z") -> str:
    with pytest.raises(grpc.RpcError) as error, Teller(daemon, recorded, letter) as collector:
        collector.tell(told)
    assert error.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    return str(error.value.details())


def test_a_fragment_without_transactions_decides_nothing(data: Path) -> None:
    with running(data) as daemon:
        with Teller(daemon, BOOKS, "z") as idle:
            idle.send(Fragment(sequence=1, sealed_ns=1))
            idle.wait_durable(1)
        with Teller(daemon, SHOP) as collector:
            collector.tell()
        assert "is another one" in refused(daemon, BOOKS, letter="y")


def test_the_second_database_is_refused_also_after_a_restart_and_the_first_goes_on(data: Path) -> None:
    for life in (1, 2):
        with running(data) as daemon:
            if life == 2:
                with pytest.raises(grpc.RpcError) as error:  # by its Hello alone
                    Teller(daemon, BOOKS, "y")
                assert error.value.code() == grpc.StatusCode.FAILED_PRECONDITION
            with Teller(daemon, SHOP) as collector:
                collector.tell()
                said = refused(daemon, BOOKS)
                assert f"{BOOKS.name} ({BOOKS.identity}) is another one" in said
                assert f"this verifier is about the database {SHOP.name}" in said
                assert "with a data directory of its own" in said
                collector.tell()
                assert collector.durable == 2 * life
            assert daemon.service.metrics.fragments_refused.labels("database")._value.get() == life
            assert [each.info.name for each in daemon.service.ingest._links.values() if each.info.name] == ["a"]


def test_a_fragment_of_another_database_is_refused_whatever_its_hello_said(data: Path) -> None:
    with running(data) as daemon:
        with Teller(daemon, SHOP) as collector:
            collector.tell(SHOP)
        for recorded in (SHOP, NOT_TOLD):
            assert BOOKS.name in refused(daemon, recorded, BOOKS)
        assert daemon.service.log.sequences.last(b"z" * 16) == 0


def test_the_first_fragment_decides_and_not_the_first_hello(data: Path) -> None:
    with running(data) as daemon:
        with Teller(daemon, BOOKS), Teller(daemon, SHOP, "b") as collector:
            collector.tell()
        assert json.loads((data / "database.json").read_text())["identity"] == SHOP.identity
        assert SHOP.name in refused(daemon, BOOKS)


def test_who_does_not_tell_is_taken_as_ever(data: Path) -> None:
    with running(data) as daemon:
        for recorded, letter in ((NOT_TOLD, "o"), (SHOP, "a"), (NOT_TOLD, "p")):
            with Teller(daemon, recorded, letter) as collector:
                collector.tell()
                assert collector.durable == 1


def test_it_is_trouble_as_long_as_somebody_tries_and_is_shown(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(data) as daemon:
        with Teller(daemon, SHOP) as collector:
            collector.tell()
        assert not daemon.service.troubles()
        refused(daemon, BOOKS)
        (trouble,) = daemon.service.troubles()
        assert SHOP.name in trouble
        assert BOOKS.name in trouble
        shown = status_text(daemon.service.query.status_now())
        assert "TROUBLE: this verifier is about" in shown
        assert f"database {SHOP.name}" in shown
        until(lambda: BOOKS.name in page(daemon.http_port, "/api/overview")[1])
        monkeypatch.setattr("mussurana.verifier.daemon.ingest.OTHERS_SHOWN_NS", -1)
        assert not daemon.service.troubles()


@pytest.mark.parametrize("expected", [SHOP.name, SHOP.identity, "shop"])
def test_the_configuration_may_say_which_one(data: Path, expected: str) -> None:
    with running(data, verify_database=expected) as daemon:
        assert "books" in refused(daemon, BOOKS)
        with Teller(daemon, SHOP) as collector:
            collector.tell()
    with pytest.raises(StartError, match="Use another data directory"), running(data, verify_database="books"):
        pass


def test_what_is_certain_takes_the_place_of_where_it_was_reached(tmp_path: Path) -> None:
    one = Audited(tmp_path)
    assert one.keep(SOMEWHERE) == ""
    assert one.keep(SHOP) == ""
    for known in (one, Audited(tmp_path)):
        assert known.refusal(SOMEWHERE) == ""
        assert known.refusal(Database(identity="postgresql:72/16384"))
    assert one.keep(SOMEWHERE) == ""
    assert json.loads((tmp_path / audited.FILE).read_text())["identity"] == SHOP.identity


def test_nothing_is_taken_before_it_is_durable_of_which_database(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, parts: object) -> None:
        raise OSError(28, "No space left on device")

    with running(data) as daemon:
        with monkeypatch.context() as patched:
            patched.setattr(audited, "write_atomically", full)
            with pytest.raises(grpc.RpcError) as error, Teller(daemon, SHOP) as collector:
                collector.tell()
            assert error.value.code() == grpc.StatusCode.UNAVAILABLE
        with Teller(daemon, BOOKS, "b") as collector:
            collector.tell()
        assert BOOKS.name in refused(daemon, SHOP)


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"identity": 1'])
def test_a_damaged_file_says_what_to_do(tmp_path: Path, content: str) -> None:
    (tmp_path / audited.FILE).write_text(content)
    with pytest.raises(AuditedError, match="If you delete it"):
        Audited(tmp_path)


def test_an_identity_of_any_length_is_no_way_to_fill_it(data: Path) -> None:
    with running(data) as daemon, pytest.raises(grpc.RpcError) as error:
        Teller(daemon, Database(identity="x" * 501))
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_identities_are_compared_by_what_is_known() -> None:
    certain, elsewhere = "postgresql:71/16384", "postgresql:72/16384"
    place, other_place = "postgresql:@a:5432/16384", "postgresql:@b:5432/16384"
    assert [may_be_one(certain, each) for each in ("", certain, place, elsewhere)] == [True, True, True, False]
    assert not may_be_one(place, other_place)
    assert not may_be_one("postgresql:@a:5432/16385", certain)
    assert are_two(certain, elsewhere)
    assert not any(are_two(place, each) for each in ("", certain, other_place))
