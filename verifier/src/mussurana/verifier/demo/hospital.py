"""The application of the demo: a hospital's on-call roster and the accounts of its canteen.

An ordinary SQLAlchemy program, which nobody wrote for Mussurana; the one line of adoption is in `connect`. Each shift
must have somebody on call: whoever wants to leave looks whether a colleague stays. Under SERIALIZABLE that is enough.
Under REPEATABLE READ two colleagues can look at the same time, and both leave.

    python -m mussurana.verifier.demo.hospital URL --isolation SERIALIZABLE
"""

from __future__ import annotations

import argparse
import random
import signal
import time
from collections.abc import Callable

from sqlalchemy import Engine, ForeignKey, create_engine, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

SHIFTS, DOCTORS_PER_SHIFT, ACCOUNTS = 12, 3, 40
FIRST_BALANCE = 100
THINKING_SECONDS = 0.004  # a person, or the rest of a web request, between reading and writing
PAUSE_SECONDS = 0.01  # between two requests of a worker
RETRY = ("40001", "40P01")  # serialization failure, deadlock: the database asks to try again


class Base(DeclarativeBase):
    pass


class Shift(Base):
    __tablename__ = "shifts"
    id: Mapped[int] = mapped_column(primary_key=True)
    ward: Mapped[str]


class Doctor(Base):
    __tablename__ = "doctors"
    id: Mapped[int] = mapped_column(primary_key=True)
    shift_id: Mapped[int] = mapped_column(ForeignKey("shifts.id"))
    on_call: Mapped[bool]


class Account(Base):
    __tablename__ = "accounts"
    id: Mapped[int] = mapped_column(primary_key=True)
    balance: Mapped[int]


def create(engine: Engine) -> None:
    """Tables, and what is in them when the hospital opens."""
    Base.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.add_all(Shift(id=shift, ward=f"ward {shift}") for shift in range(1, SHIFTS + 1))
        session.flush()
        for shift in range(1, SHIFTS + 1):
            first = DOCTORS_PER_SHIFT * (shift - 1) + 1
            session.add_all(
                Doctor(id=doctor, shift_id=shift, on_call=True) for doctor in range(first, first + DOCTORS_PER_SHIFT)
            )
        session.add_all(Account(id=account, balance=FIRST_BALANCE) for account in range(1, ACCOUNTS + 1))


def leave(session: Session, rng: random.Random) -> None:
    """Go off call, if a colleague of the same shift stays."""
    shift = rng.randint(1, SHIFTS)
    doctors = session.scalars(select(Doctor).where(Doctor.shift_id == shift)).all()
    time.sleep(THINKING_SECONDS)
    on_call = [doctor for doctor in doctors if doctor.on_call]
    if len(on_call) > 1:
        rng.choice(on_call).on_call = False


def come(session: Session, rng: random.Random) -> None:
    """Go on call."""
    doctor = session.get_one(Doctor, rng.randint(1, SHIFTS * DOCTORS_PER_SHIFT))
    doctor.on_call = True


def pay(session: Session, rng: random.Random) -> None:
    """Move money, if there is enough."""
    payer, payee = (session.get_one(Account, account) for account in rng.sample(range(1, ACCOUNTS + 1), 2))
    amount = rng.randint(1, 20)
    if payer.balance >= amount:
        payer.balance -= amount
        payee.balance += amount


def look(session: Session, rng: random.Random) -> None:
    """Who is on call? What is on the account?"""
    session.scalars(select(Doctor).where(Doctor.shift_id == rng.randint(1, SHIFTS))).all()
    session.get_one(Account, rng.randint(1, ACCOUNTS))


REQUESTS: dict[Callable[[Session, random.Random], None], int] = {leave: 3, come: 3, pay: 4, look: 4}


def connect(url: str, isolation: str) -> Engine:
    return create_engine(url, isolation_level=isolation, plugins=["mussurana"])  # the one line: plugins=...


def work(engine: Engine, rng: random.Random, go_on: Callable[[], bool]) -> None:
    while go_on():
        (request,) = rng.choices(list(REQUESTS), weights=list(REQUESTS.values()))
        try:
            with Session(engine) as session, session.begin():
                request(session, rng)
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) not in RETRY:
                raise
        time.sleep(rng.expovariate(1 / PAUSE_SECONDS))


def main() -> None:
    parser = argparse.ArgumentParser(description="A worker of the demo's hospital, until SIGTERM.")
    parser.add_argument("url")
    parser.add_argument("--isolation", default="SERIALIZABLE")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    stopping = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
    engine = connect(options.url, options.isolation)
    try:
        work(engine, random.Random(options.seed), lambda: not stopping)
    finally:
        engine.dispose()


if __name__ == "__main__":
    main()
