"""Tables that are adopted, stories that use them, and what was recorded of it."""

from __future__ import annotations

from collections import Counter
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    ForeignKey,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    delete,
    func,
    insert,
    inspect,
    select,
    text,
    update,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, joinedload, mapped_column, relationship, selectinload

from mussurana.collector.__main__ import main
from mussurana.collector.recorder import close_all
from mussurana.wire import history_pb2
from tests.collector.recording.observed import fragments

metadata = MetaData()
accounts = Table(
    "accounts",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("owner", String(40)),
    Column("balance", Integer, server_default="0"),
)


class Base(DeclarativeBase):
    pass


class Author(Base):
    __tablename__ = "authors"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    books: Mapped[list[Book]] = relationship(back_populates="author", order_by="Book.id", cascade="all, delete-orphan")


class Book(Base):
    __tablename__ = "books"
    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str]
    author_id: Mapped[int] = mapped_column(ForeignKey("authors.id"))
    author: Mapped[Author] = relationship(back_populates="books")


def make_tables(url: str, adopt: bool = True) -> str:
    engine = create_engine(url)
    metadata.create_all(engine)
    Base.metadata.create_all(engine)
    engine.dispose()
    if adopt:
        with redirect_stdout(StringIO()):
            assert main(["adopt", url]) == 0
    return url


def core_story(connection: Connection) -> list[Any]:
    """All that an application sees while it uses Core in one transaction."""
    seen: list[Any] = []
    seen.append(connection.execute(insert(accounts), {"owner": "Ada"}).inserted_primary_key)
    rows = [{"owner": f"owner {number}", "balance": number} for number in range(25)]
    seen.append(connection.execute(insert(accounts).returning(accounts.c.id, accounts.c.owner), rows).fetchall())
    seen.append(connection.execute(insert(accounts), rows[:3]).rowcount)
    seen.append(connection.execute(select(accounts).where(accounts.c.id == 1)).mappings().all())
    other = accounts.alias()
    joined = select(accounts.c.owner, other.c.id).join_from(accounts, other, accounts.c.id == other.c.balance)
    seen.append(sorted(connection.execute(joined).fetchall()))
    changed = update(accounts).where(accounts.c.balance > 20).values(balance=0)
    seen.append(connection.execute(changed).rowcount)
    seen.append(connection.execute(changed.returning(accounts.c.id)).fetchall())
    seen.append(connection.execute(select(func.count(), func.max(accounts.c.balance)).select_from(accounts)).fetchall())
    star = connection.execute(text("SELECT * FROM accounts WHERE id = :id"), {"id": 1})
    seen += [list(star.keys()), star.fetchall()]
    seen.append(connection.execute(select(accounts.c.id).distinct().where(accounts.c.id < 3)).fetchall())
    savepoint = connection.begin_nested()
    connection.execute(update(accounts).where(accounts.c.id == 1).values(owner="nobody"))
    savepoint.rollback()
    try:
        with connection.begin_nested():
            connection.execute(insert(accounts), {"id": 1, "owner": "twice"})
    except IntegrityError as error:
        seen.append(type(error.orig))
    seen.append(connection.execute(delete(accounts).where(accounts.c.id.in_([2, 3]))).rowcount)
    seen.append(connection.scalar(select(accounts.c.owner).where(accounts.c.id == 1)))
    return seen


def orm_story(session: Session) -> list[Any]:
    seen: list[Any] = []
    ada = Author(name="Ada", books=[Book(title="Notes"), Book(title="Letters")])
    session.add_all([ada, Author(name="Charles")])
    session.flush()
    seen.append((ada.id, [book.id for book in ada.books]))
    session.commit()
    ada.books[0].title = "Notes, second edition"
    ada.books.pop()
    session.commit()
    for option in (selectinload, joinedload):
        authors = session.scalars(select(Author).options(option(Author.books)).order_by(Author.id)).unique().all()
        seen.append([(author.name, [book.title for book in author.books]) for author in authors])
        session.expire_all()
    session.rollback()
    seen.append(session.get(Author, 999))
    session.delete(session.get_one(Author, ada.id))
    session.commit()
    seen.append(session.scalar(select(func.count()).select_from(Book)))
    return seen


def reflected(engine: Engine) -> list[Any]:
    inspector = inspect(engine)
    found = MetaData()
    found.reflect(engine)
    return [
        sorted(inspector.get_table_names()),
        [column["name"] for column in inspector.get_columns("accounts")],
        sorted((name[1], [column["name"] for column in each]) for name, each in inspector.get_multi_columns().items()),
        {table.name: list(table.columns.keys()) for table in found.sorted_tables},
    ]


def operations(spool: Path) -> Counter[tuple[str, str]]:
    """How often which kind of operation was recorded on which table. Ends recording."""
    close_all()
    names: dict[int, str] = {}
    counted: Counter[tuple[str, str]] = Counter()
    for fragment in fragments(spool):
        names |= {entry.key: entry.name for entry in fragment.key_name}
        for kind, key in zip(fragment.op_kind, memoryview(fragment.op_key).cast("Q"), strict=True):
            table = names.get(key, "fence").partition("/")[0]
            counted[history_pb2.OpKind.Name(kind), table] += 1
    return counted
