"""TPC-C as far as its five transactions and their mix go; tables have the columns that these use, and are small.

Each client has a home warehouse, as a terminal has, so that waiting for each other's locks is rare.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import (
    BigInteger,
    BindParameter,
    Column,
    Float,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    bindparam,
    delete,
    distinct,
    func,
    insert,
    select,
    update,
)

from bench.workloads import Client, Statement, Transaction, Workload

WAREHOUSES = 8
DISTRICTS = 10  # of a warehouse
CUSTOMERS = 30  # of a district
ITEMS = 1_000


def key(name: str) -> Column[int]:
    return Column(name, Integer, primary_key=True, autoincrement=False)


metadata = MetaData()
warehouse = Table("warehouse", metadata, key("w_id"), Column("w_tax", Float), Column("w_ytd", Float))
district = Table(
    "district",
    metadata,
    key("d_w_id"),
    key("d_id"),
    Column("d_tax", Float),
    Column("d_ytd", Float),
    Column("d_next_o_id", Integer),
)
customer = Table(
    "customer",
    metadata,
    key("c_w_id"),
    key("c_d_id"),
    key("c_id"),
    Column("c_last", String),
    Column("c_discount", Float),
    Column("c_balance", Float),
    Column("c_payments", Integer),
)
item = Table("item", metadata, key("i_id"), Column("i_name", String), Column("i_price", Float))
stock = Table("stock", metadata, key("s_w_id"), key("s_i_id"), Column("s_quantity", Integer), Column("s_ytd", Integer))
orders = Table(
    "orders",
    metadata,
    key("o_w_id"),
    key("o_d_id"),
    key("o_id"),
    Column("o_c_id", Integer),
    Column("o_carrier", Integer),
)
Index("orders_of_customer", orders.c.o_w_id, orders.c.o_d_id, orders.c.o_c_id, orders.c.o_id)
new_order = Table("new_order", metadata, key("no_w_id"), key("no_d_id"), key("no_o_id"))
order_line = Table(
    "order_line",
    metadata,
    key("ol_w_id"),
    key("ol_d_id"),
    key("ol_o_id"),
    key("ol_number"),
    Column("ol_i_id", Integer),
    Column("ol_quantity", Integer),
    Column("ol_amount", Float),
    Column("ol_delivered", Integer),
)
payment_log = Table(
    "payment_log",
    metadata,
    Column("h_id", BigInteger, primary_key=True, autoincrement=False),
    Column("h_c_id", Integer),
    Column("h_amount", Float),
)

# As TPC-C has them: warehouse, district, customer, item, order.
W: BindParameter[int] = bindparam("w")
D: BindParameter[int] = bindparam("d")
C: BindParameter[int] = bindparam("c")
I: BindParameter[int] = bindparam("i")  # noqa: E741
O: BindParameter[int] = bindparam("o")  # noqa: E741
of_district = (district.c.d_w_id == W, district.c.d_id == D)
of_customer = (customer.c.c_w_id == W, customer.c.c_d_id == D, customer.c.c_id == C)
of_order = (orders.c.o_w_id == W, orders.c.o_d_id == D, orders.c.o_id == O)
lines_of_order = (order_line.c.ol_w_id == W, order_line.c.ol_d_id == D, order_line.c.ol_o_id == O)

WAREHOUSE = Statement(select(warehouse.c.w_tax, warehouse.c.w_ytd).where(warehouse.c.w_id == W))
WAREHOUSE_YTD = Statement(
    update(warehouse).where(warehouse.c.w_id == W).values(w_ytd=warehouse.c.w_ytd + bindparam("amount", type_=Float))
)
DISTRICT = Statement(select(district.c.d_tax, district.c.d_next_o_id).where(*of_district))
DISTRICT_LOCKED = Statement(select(district.c.d_tax, district.c.d_next_o_id).where(*of_district).with_for_update())
DISTRICT_NEXT = Statement(update(district).where(*of_district).values(d_next_o_id=bindparam("next")))
DISTRICT_YTD = Statement(
    update(district).where(*of_district).values(d_ytd=district.c.d_ytd + bindparam("amount", type_=Float))
)
CUSTOMER = Statement(select(customer.c.c_last, customer.c.c_discount, customer.c.c_balance).where(*of_customer))
CUSTOMER_PAYS = Statement(
    update(customer)
    .where(*of_customer)
    .values(c_balance=customer.c.c_balance - bindparam("amount", type_=Float), c_payments=customer.c.c_payments + 1)
)
CUSTOMER_GETS = Statement(
    update(customer).where(*of_customer).values(c_balance=customer.c.c_balance + bindparam("amount", type_=Float))
)
LOG_PAYMENT = Statement(
    insert(payment_log).values(h_id=bindparam("h"), h_c_id=bindparam("c"), h_amount=bindparam("amount"))
)
ITEM = Statement(select(item.c.i_name, item.c.i_price).where(item.c.i_id == I))
STOCK = Statement(select(stock.c.s_quantity).where(stock.c.s_w_id == W, stock.c.s_i_id == I).with_for_update())
STOCK_TAKEN = Statement(
    update(stock)
    .where(stock.c.s_w_id == W, stock.c.s_i_id == I)
    .values(s_quantity=bindparam("left"), s_ytd=stock.c.s_ytd + 1)
)
ORDER = Statement(insert(orders).values(o_w_id=W, o_d_id=D, o_id=O, o_c_id=bindparam("c")))
NEW_ORDER = Statement(insert(new_order).values(no_w_id=W, no_d_id=D, no_o_id=O))
LINE = Statement(
    insert(order_line).values(
        ol_w_id=W,
        ol_d_id=D,
        ol_o_id=O,
        ol_number=bindparam("n"),
        ol_i_id=I,
        ol_quantity=bindparam("quantity"),
        ol_amount=bindparam("amount"),
    )
)
LAST_ORDER = Statement(
    select(orders.c.o_id, orders.c.o_carrier)
    .where(orders.c.o_w_id == W, orders.c.o_d_id == D, orders.c.o_c_id == C)
    .order_by(orders.c.o_id.desc())
    .limit(1)
)
LINES = Statement(select(order_line.c.ol_i_id, order_line.c.ol_quantity, order_line.c.ol_amount).where(*lines_of_order))
OLDEST_NEW = Statement(
    select(new_order.c.no_o_id)
    .where(new_order.c.no_w_id == W, new_order.c.no_d_id == D)
    .order_by(new_order.c.no_o_id)
    .limit(1)
    .with_for_update(skip_locked=True)
)
DELIVERED = Statement(
    delete(new_order).where(new_order.c.no_w_id == W, new_order.c.no_d_id == D, new_order.c.no_o_id == O)
)
CUSTOMER_OF_ORDER = Statement(select(orders.c.o_c_id).where(*of_order))
CARRIER = Statement(update(orders).where(*of_order).values(o_carrier=bindparam("carrier")))
LINES_DELIVERED = Statement(update(order_line).where(*lines_of_order).values(ol_delivered=1))
LOW_STOCK = Statement(
    select(func.count(distinct(stock.c.s_i_id)))
    .select_from(order_line)
    .join(stock, (stock.c.s_w_id == order_line.c.ol_w_id) & (stock.c.s_i_id == order_line.c.ol_i_id))
    .where(
        order_line.c.ol_w_id == W,
        order_line.c.ol_d_id == D,
        order_line.c.ol_o_id >= bindparam("first", type_=Integer),
        stock.c.s_quantity < bindparam("threshold", type_=Integer),
    )
)


def rows() -> Iterator[tuple[Table, list[dict[str, Any]]]]:
    places = [(w, d) for w in range(WAREHOUSES) for d in range(DISTRICTS)]
    yield warehouse, [{"w_id": w, "w_tax": 0.1, "w_ytd": 0.0} for w in range(WAREHOUSES)]
    yield district, [{"d_w_id": w, "d_id": d, "d_tax": 0.1, "d_ytd": 0.0, "d_next_o_id": 1} for w, d in places]
    yield (
        customer,
        [
            {
                "c_w_id": w,
                "c_d_id": d,
                "c_id": c,
                "c_last": f"name {c}",
                "c_discount": 0.05,
                "c_balance": 0.0,
                "c_payments": 0,
            }
            for w, d in places
            for c in range(CUSTOMERS)
        ],
    )
    yield item, [{"i_id": i, "i_name": f"item {i}", "i_price": 1.0 + i % 90} for i in range(ITEMS)]
    yield (
        stock,
        [{"s_w_id": w, "s_i_id": i, "s_quantity": 50, "s_ytd": 0} for w in range(WAREHOUSES) for i in range(ITEMS)],
    )


def transaction(client: Client) -> Transaction:
    random = client.random
    place = {"w": client.number % WAREHOUSES, "d": random.randrange(DISTRICTS)}
    kind = random.random()
    if kind < 0.45:
        return order_something(client, place)
    if kind < 0.88:
        return pay(client, place)
    if kind < 0.92:
        return look_at_order(client, place)
    if kind < 0.96:
        return deliver(client, place)
    return look_at_stock(place)


def order_something(client: Client, place: dict[str, int]) -> Transaction:
    random = client.random
    who = {**place, "c": random.randrange(CUSTOMERS)}
    yield WAREHOUSE, {"w": place["w"]}
    found = yield DISTRICT_LOCKED, place
    number = found[0][1]
    yield DISTRICT_NEXT, {**place, "next": number + 1}
    yield CUSTOMER, who
    yield ORDER, {**who, "o": number}
    yield NEW_ORDER, {**place, "o": number}
    for line, wanted in enumerate(sorted(random.sample(range(ITEMS), random.randint(5, 15)))):
        (_, price) = (yield ITEM, {"i": wanted})[0]
        (left,) = (yield STOCK, {"w": place["w"], "i": wanted})[0]
        quantity = random.randint(1, 10)
        left = left - quantity if left >= quantity + 10 else left - quantity + 91
        yield STOCK_TAKEN, {"w": place["w"], "i": wanted, "left": left}
        yield (
            LINE,
            {**place, "o": number, "n": line, "i": wanted, "quantity": quantity, "amount": quantity * price},
        )


def pay(client: Client, place: dict[str, int]) -> Transaction:
    who = {**place, "c": client.random.randrange(CUSTOMERS)}
    amount = client.random.uniform(1, 5000)
    yield WAREHOUSE_YTD, {"w": place["w"], "amount": amount}
    yield DISTRICT_YTD, {**place, "amount": amount}
    yield CUSTOMER, who
    yield CUSTOMER_PAYS, {**who, "amount": amount}
    yield LOG_PAYMENT, {"h": client.fresh(), "c": who["c"], "amount": amount}


def look_at_order(client: Client, place: dict[str, int]) -> Transaction:
    who = {**place, "c": client.random.randrange(CUSTOMERS)}
    yield CUSTOMER, who
    found = yield LAST_ORDER, who
    if found:
        yield LINES, {**place, "o": found[0][0]}


def deliver(client: Client, place: dict[str, int]) -> Transaction:
    for number in range(DISTRICTS):
        place = {"w": place["w"], "d": number}
        oldest = yield OLDEST_NEW, place
        if not oldest:
            continue
        order = {**place, "o": oldest[0][0]}
        yield DELIVERED, order
        (who,) = (yield CUSTOMER_OF_ORDER, order)[0]
        yield CARRIER, {**order, "carrier": client.random.randint(1, 10)}
        yield LINES_DELIVERED, order
        lines = yield LINES, order
        yield CUSTOMER_GETS, {**place, "c": who, "amount": sum(line[2] for line in lines)}


def look_at_stock(place: dict[str, int]) -> Transaction:
    found = yield DISTRICT, place
    yield LOW_STOCK, {**place, "first": found[0][1] - 20, "threshold": 20}


WORKLOAD = Workload("tpcc", metadata, rows, transaction)
