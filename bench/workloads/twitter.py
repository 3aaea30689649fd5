"""A small Twitter: post, follow, unfollow, look at a timeline, at a post, at a person."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, String, Table, bindparam, delete, select, update
from sqlalchemy.dialects.postgresql import insert

from bench.workloads import Client, Statement, Transaction, Workload

USERS = 1_000
FOLLOWED = 20  # by each user at the start
TIMELINE = 10

metadata = MetaData()
users = Table(
    "users",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("name", String),
    Column("last_post", BigInteger),
    Column("posts", Integer),
)
follows = Table(
    "follows",
    metadata,
    Column("follower", Integer, primary_key=True, autoincrement=False),
    Column("followed", Integer, primary_key=True, autoincrement=False),
)
posts = Table(
    "posts",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("author", Integer),
    Column("text", String),
)
Index("posts_of_author", posts.c.author, posts.c.id)

USER = Statement(select(users.c.name, users.c.last_post, users.c.posts).where(users.c.id == bindparam("u")))
POST = Statement(insert(posts).values(id=bindparam("p"), author=bindparam("u"), text=bindparam("t")))
COUNT_POST = Statement(
    update(users)
    .where(users.c.id == bindparam("u"))
    .values(posts=users.c.posts + 1, last_post=bindparam("p", type_=BigInteger))
)
ONE_POST = Statement(select(posts).where(posts.c.id == bindparam("p")))
FOLLOW = Statement(insert(follows).values(follower=bindparam("u"), followed=bindparam("v")).on_conflict_do_nothing())
UNFOLLOW = Statement(delete(follows).where(follows.c.follower == bindparam("u"), follows.c.followed == bindparam("v")))
FOLLOWED_BY = Statement(select(follows.c.followed).where(follows.c.follower == bindparam("u")))
TIMELINE_OF = Statement(
    select(posts.c.id, posts.c.author, posts.c.text, users.c.name)
    .join_from(posts, users, users.c.id == posts.c.author)
    .where(posts.c.author == bindparam("u"))
    .order_by(posts.c.id.desc())
    .limit(TIMELINE)
)


def rows() -> Iterator[tuple[Table, list[dict[str, Any]]]]:
    yield users, [{"id": user, "name": f"user {user}", "last_post": user, "posts": 1} for user in range(USERS)]
    yield posts, [{"id": user, "author": user, "text": "hello"} for user in range(USERS)]
    yield (
        follows,
        [
            {"follower": user, "followed": (user + step * step) % USERS}
            for user in range(USERS)
            for step in range(1, FOLLOWED + 1)
        ],
    )


def transaction(client: Client) -> Transaction:
    random = client.random
    user, other = random.randrange(USERS), random.randrange(USERS)
    kind = random.random()
    if kind < 0.25:
        post = client.fresh()
        yield POST, {"p": post, "u": user, "t": "what I had for lunch, " * 5}
        yield COUNT_POST, {"u": user, "p": post}
    elif kind < 0.35:
        yield USER, {"u": other}
        yield FOLLOW, {"u": user, "v": other}
    elif kind < 0.40:
        yield UNFOLLOW, {"u": user, "v": other}
    elif kind < 0.75:
        followed = yield FOLLOWED_BY, {"u": user}
        for (author,) in random.sample(followed, min(3, len(followed))):
            yield TIMELINE_OF, {"u": author}
    else:
        found = yield USER, {"u": other}
        yield ONE_POST, {"p": found[0][1]}


WORKLOAD = Workload("twitter", metadata, rows, transaction)
