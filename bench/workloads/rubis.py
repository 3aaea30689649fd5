"""RUBiS, the auction site: browse, look at an item, its bids or a person; bid, buy, comment, sell, register."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    bindparam,
    insert,
    select,
    update,
)

from bench.workloads import Client, Statement, Transaction, Workload

USERS = 1_000
ITEMS = 2_000
CATEGORIES = 20
PAGE = 20  # items on a page of a category

metadata = MetaData()


def number(name: str) -> Column[int]:
    return Column(name, BigInteger, primary_key=True, autoincrement=False)


users = Table("users", metadata, number("id"), Column("name", String), Column("rating", Integer))
items = Table(
    "items",
    metadata,
    number("id"),
    Column("name", String),
    Column("seller", BigInteger),
    Column("category", Integer),
    Column("price", Float),
    Column("bids", Integer),
    Column("quantity", Integer),
)
Index("items_of_category", items.c.category, items.c.id)
bids = Table(
    "bids", metadata, number("id"), Column("item", BigInteger), Column("bidder", BigInteger), Column("price", Float)
)
Index("bids_on_item", bids.c.item)
comments = Table(
    "comments",
    metadata,
    number("id"),
    Column("about", BigInteger),
    Column("author", BigInteger),
    Column("text", String),
)
Index("comments_about", comments.c.about)
sales = Table("sales", metadata, number("id"), Column("item", BigInteger), Column("buyer", BigInteger))

CATEGORY = Statement(
    select(items.c.id, items.c.name, items.c.price)
    .where(items.c.category == bindparam("c"))
    .order_by(items.c.id)
    .limit(PAGE)
)
ITEM = Statement(select(items).where(items.c.id == bindparam("i")))
ITEM_LOCKED = Statement(select(items.c.price, items.c.quantity).where(items.c.id == bindparam("i")).with_for_update())
USER = Statement(select(users).where(users.c.id == bindparam("u")))
BIDS = Statement(
    select(bids.c.price, users.c.name)
    .join_from(bids, users, users.c.id == bids.c.bidder)
    .where(bids.c.item == bindparam("i"))
    .limit(PAGE)
)
COMMENTS = Statement(select(comments.c.text).where(comments.c.about == bindparam("u")).limit(PAGE))
BID = Statement(
    insert(bids).values(id=bindparam("n"), item=bindparam("i"), bidder=bindparam("u"), price=bindparam("p"))
)
RAISE = Statement(
    update(items).where(items.c.id == bindparam("i")).values(price=bindparam("p", type_=Float), bids=items.c.bids + 1)
)
SALE = Statement(insert(sales).values(id=bindparam("n"), item=bindparam("i"), buyer=bindparam("u")))
SOLD = Statement(update(items).where(items.c.id == bindparam("i")).values(quantity=items.c.quantity - 1))
COMMENT = Statement(
    insert(comments).values(id=bindparam("n"), about=bindparam("u"), author=bindparam("a"), text=bindparam("t"))
)
RATE = Statement(update(users).where(users.c.id == bindparam("u")).values(rating=users.c.rating + 1))
REGISTER = Statement(insert(users).values(id=bindparam("n"), name=bindparam("t"), rating=0))
SELL = Statement(
    insert(items).values(
        id=bindparam("n"),
        name=bindparam("t"),
        seller=bindparam("u"),
        category=bindparam("c"),
        price=bindparam("p"),
        bids=0,
        quantity=10,
    )
)


def rows() -> Iterator[tuple[Table, list[dict[str, Any]]]]:
    yield users, [{"id": user, "name": f"user {user}", "rating": 0} for user in range(USERS)]
    yield (
        items,
        [
            {
                "id": item,
                "name": f"item {item}",
                "seller": item % USERS,
                "category": item % CATEGORIES,
                "price": 1.0,
                "bids": 0,
                "quantity": 1000,
            }
            for item in range(ITEMS)
        ],
    )


def transaction(client: Client) -> Transaction:
    random = client.random
    user, item, category = random.randrange(USERS), random.randrange(ITEMS), random.randrange(CATEGORIES)
    kind = random.random()
    if kind < 0.25:
        for chosen in random.sample((yield CATEGORY, {"c": category}), 2):
            yield ITEM, {"i": chosen[0]}
    elif kind < 0.45:
        found = yield ITEM, {"i": item}
        yield USER, {"u": found[0][2]}
        yield BIDS, {"i": item}
    elif kind < 0.55:
        yield USER, {"u": user}
        yield COMMENTS, {"u": user}
    elif kind < 0.80:
        price, _ = (yield ITEM_LOCKED, {"i": item})[0]
        yield USER, {"u": user}
        yield BID, {"n": client.fresh(), "i": item, "u": user, "p": price + 1}
        yield RAISE, {"i": item, "p": price + 1}
    elif kind < 0.87:
        _, quantity = (yield ITEM_LOCKED, {"i": item})[0]
        if quantity > 0:
            yield SALE, {"n": client.fresh(), "i": item, "u": user}
            yield SOLD, {"i": item}
    elif kind < 0.94:
        yield COMMENT, {"n": client.fresh(), "u": user, "a": random.randrange(USERS), "t": "a pleasure to deal with"}
        yield RATE, {"u": user}
    elif kind < 0.97:
        yield SELL, {"n": client.fresh(), "t": "an old lamp", "u": user, "c": category, "p": 1.0}
    else:
        yield REGISTER, {"n": client.fresh(), "t": "somebody new"}


WORKLOAD = Workload("rubis", metadata, rows, transaction)
