"""The JSON object that programs read."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mussurana.verifier.render.json import result_json
from tests.render import samples

KEYS = [
    "verdict",
    "level",
    "transactions",
    "sessions",
    "anomaly",
    "adya",
    "counterexample",
    "seconds",
    "choices",
    "left_out",
    "reason",
    "session_order",
    "clock_drift_seconds",
    "conflicts",
]


@pytest.mark.parametrize("name", samples.ALL)
def test_every_result_has_the_documented_keys_and_survives_a_round_trip(name: str) -> None:
    value = result_json(samples.ALL[name]())
    assert list(value) == KEYS
    assert json.loads(json.dumps(value)) == value


def test_rejected_names_the_anomaly_and_shows_the_counterexample() -> None:
    value = result_json(samples.write_skew())
    assert (value["verdict"], value["anomaly"], value["adya"], value["reason"]) == (
        "rejected",
        "write skew",
        "G2-item",
        None,
    )
    found = value["counterexample"]
    assert found["transactions"][0]["operations"][1] == {
        "kind": "write",
        "key": "doctors/9",
        "version": "v58",
        "previous": "v12",
        "statement": "UPDATE doctors SET on_call = %s WHERE id = %s",
    }
    assert [(s["source"], s["target"], s["kind"], s["key"]) for s in found["cases"][0]["steps"]] == [
        (0, 1, "rw", "doctors/7"),
        (1, 0, "rw", "doctors/9"),
    ]
    assert value["left_out"] == [{"what": "aborted transactions that nobody read", "count": 12}]


def test_an_anomaly_that_adya_did_not_name_has_null() -> None:
    assert result_json(samples.snapshot_cycle())["adya"] is None


def test_accepted_and_unknown_have_null_where_there_is_nothing_to_say() -> None:
    accepted, unknown = result_json(samples.accepted()), result_json(samples.unknown())
    assert [accepted[key] for key in ("anomaly", "adya", "counterexample", "reason")] == [None] * 4
    assert [unknown[key] for key in ("anomaly", "adya", "counterexample")] == [None] * 3
    assert unknown["reason"].startswith("The search ended")
    assert accepted["choices"] == {"generated": 111_947, "pruned": 109_668, "solved": 2_279}
    assert accepted["clock_drift_seconds"] == 0.1


def test_numpy_numbers_become_plain_ones() -> None:
    counts: dict[str, Any] = {"transactions": np.int64(7), "conflicts": np.int32(2)}
    result = replace(samples.accepted(), **counts, seconds={"total": np.float64(1)})
    value = json.loads(json.dumps(result_json(result)))
    assert (value["transactions"], value["conflicts"], value["seconds"]) == (7, 2, {"total": 1.0})
