"""One line adopts an engine: everything looks as before, and everything is recorded."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import NullPool, QueuePool, create_engine, select, text
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from mussurana.collector.recorder import close_all
from mussurana.collector.settings import SettingsError
from tests.collector.postgres import Database, create_database, drop_database
from tests.collector.sqlalchemy.recorded import (
    accounts,
    core_story,
    make_tables,
    operations,
    orm_story,
    reflected,
)

NEWEST = pytest.mark.parametrize("postgres", [18], indirect=True)


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "spool"
    close_all()


@pytest.fixture
def two_postgres(database: Database) -> Iterator[tuple[str, str]]:
    """URLs of a database without our columns and of an adopted one."""
    other = create_database(database.server)
    yield make_tables(other.url(), adopt=False), make_tables(database.url())
    drop_database(other)


@pytest.fixture
def two_sqlite(tmp_path: Path) -> tuple[str, str]:
    plain, adopted = (f"sqlite:///{tmp_path}/{name}.db" for name in ("plain", "adopted"))
    return make_tables(plain, adopt=False), make_tables(adopted)


def compare(urls: tuple[str, str], spool: Path) -> None:
    """The same stories on a plain engine and on a recorded one."""
    seen = []
    for url, options in zip(urls, ({}, {"plugins": ["mussurana"], "mussurana_spool": str(spool)}), strict=True):
        engine = create_engine(url, **options)
        with engine.begin() as connection:
            story = core_story(connection)
        with Session(engine) as session:
            seen.append([*story, *orm_story(session), *reflected(engine)])
        engine.dispose()
    assert seen[1] == seen[0]


def check_operations(spool: Path) -> None:
    counted = operations(spool)
    assert counted["INSERT", "accounts"] >= 29, counted
    assert counted["UPDATE", "accounts"] > 0
    assert counted["READ", "accounts"] > 0
    assert counted["DELETE", "accounts"] == 2
    assert counted["INSERT", "authors"] == 2
    assert counted["DELETE", "books"] == 2
    assert counted["UPDATE", "books"] == 1
    assert counted["READ_ABSENT", "authors"] >= 1


def test_postgres_looks_the_same_and_is_recorded(two_postgres: tuple[str, str], spool: Path) -> None:
    compare(two_postgres, spool)
    check_operations(spool)


def test_sqlite_looks_the_same_and_is_recorded(two_sqlite: tuple[str, str], spool: Path) -> None:
    compare(two_sqlite, spool)
    check_operations(spool)


async def tell_async(url: str, options: dict[str, Any]) -> list[Any]:
    engine = create_async_engine(url, **options)
    async with engine.begin() as connection:
        seen = await connection.run_sync(core_story)
        streamed = await connection.stream(select(accounts).order_by(accounts.c.id).limit(5))
        seen.append([row async for row in streamed])
    async with AsyncSession(engine) as session:
        seen += await session.run_sync(orm_story)
    await engine.dispose()
    return seen


def compare_async(urls: tuple[str, str], spool: Path) -> None:
    plain, adopted = urls
    expected = asyncio.run(tell_async(plain, {}))
    found = asyncio.run(tell_async(adopted, {"plugins": ["mussurana"], "mussurana_spool": str(spool)}))
    assert found == expected


def test_async_postgres_looks_the_same_and_is_recorded(two_postgres: tuple[str, str], spool: Path) -> None:
    compare_async(two_postgres, spool)
    check_operations(spool)


def test_async_sqlite_looks_the_same_and_is_recorded(two_sqlite: tuple[str, str], spool: Path) -> None:
    plain, adopted = (url.replace("sqlite:", "sqlite+aiosqlite:") for url in two_sqlite)
    compare_async((plain, adopted), spool)
    check_operations(spool)


@NEWEST
def test_the_url_alone_is_enough(database: Database, spool: Path) -> None:
    make_tables(database.url())
    engine = create_engine(f"{database.url()}&plugin=mussurana&mussurana_spool={spool}&mussurana_name=web-3")
    assert not {"plugin", "mussurana_spool"} & set(engine.url.query)
    with engine.begin() as connection:
        connection.execute(accounts.insert(), {"id": 1, "owner": "Ada"})
    engine.dispose()
    assert operations(spool)["INSERT", "accounts"] == 1


@NEWEST
@pytest.mark.parametrize("pool", [NullPool, QueuePool])
def test_sessions_follow_the_pool(database: Database, spool: Path, pool: Any) -> None:
    make_tables(database.url())
    engine = create_engine(database.url(), poolclass=pool, plugins=["mussurana"], mussurana_spool=str(spool))
    for number in range(3):
        with engine.begin() as connection:
            connection.execute(accounts.insert(), {"id": number, "owner": "Ada"})
    engine.dispose()
    assert operations(spool)["INSERT", "accounts"] == 3


@NEWEST
def test_a_connection_that_a_creator_made_is_adopted(database: Database, spool: Path) -> None:
    make_tables(database.url())
    engine = create_engine(
        "postgresql+psycopg://",
        creator=lambda: psycopg.connect(database.conninfo),
        plugins=["mussurana"],
        mussurana_spool=str(spool),
    )
    with engine.begin() as connection:
        connection.execute(accounts.insert(), {"id": 1, "owner": "Ada"})
    engine.dispose()
    assert operations(spool)["INSERT", "accounts"] == 1


def test_a_connection_that_cannot_be_adopted_is_said_to_be_unrecorded(tmp_path: Path, spool: Path) -> None:
    url = make_tables(f"sqlite:///{tmp_path}/a.db")
    engine = create_engine(
        url,
        creator=lambda: sqlite3.connect(tmp_path / "a.db"),
        plugins=["mussurana"],
        mussurana_spool=str(spool),
    )
    with pytest.warns(RuntimeWarning, match="does not record"), engine.connect() as connection:
        assert connection.scalar(text("SELECT 1")) == 1


def test_a_driver_that_cannot_be_recorded_is_refused_at_once() -> None:
    class Unknown:
        paramstyle = "pyformat"
        version_info = (1, 0)
        Error = Exception

    with pytest.raises(ArgumentError, match=r"use postgresql\+psycopg://"):
        create_engine("mysql+pymysql://host/db", plugins=["mussurana"], module=Unknown)


def test_settings_that_cannot_be_used_are_refused_at_once() -> None:
    with pytest.raises(SettingsError, match="mussurana_spol"):
        create_engine("sqlite://?mussurana_spol=/tmp/x", plugins=["mussurana"])
    with pytest.raises(SettingsError, match="fence_txns_max"):
        create_engine("sqlite://", plugins=["mussurana"], mussurana_fence_txns_max=0)


def test_disabled_it_only_takes_its_arguments_away(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/a.db?mussurana_enabled=no", plugins=["mussurana"])
    with engine.connect() as connection:
        driver_connection: Any = connection.connection.driver_connection
        assert type(driver_connection) is sqlite3.Connection


def test_wrapping_twice_is_harmless(two_sqlite: tuple[str, str], spool: Path) -> None:
    engine = create_engine(two_sqlite[1], plugins=["mussurana", "mussurana"], mussurana_spool=str(spool))
    with engine.begin() as connection:
        connection.execute(accounts.insert(), {"id": 1, "owner": "Ada"})
    engine.dispose()
    assert operations(spool)["INSERT", "accounts"] == 1
