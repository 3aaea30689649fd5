"""Certificates: other values, other proofs. What the auditor upholds has to be true, whoever wrote it."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

from mussurana.verifier import check
from mussurana.verifier.audit import audit
from mussurana.verifier.certificate import CertificateError, certificate, read_certificate
from mussurana.verifier.formats import native
from mussurana.verifier.history import History, HistoryBuilder
from tests.audit.forging import forgeries, is_true, with_numbers
from tests.inputs.damage import damaged, number, spoiled, with_placeholders
from tests.inputs.reader import Files, Reader
from tests.random_history import random_history, random_settings

PROOF, HISTORY = "proof.json", "history.mus"
BRUTE_FORCE_TXNS_MAX = 7
TXNS_MANY = (30, 300, 3_000)


def make(rng: Random) -> Files:
    many = rng.random() < 0.15
    history = long_history(rng) if many else random_history(rng, duplicates=rng.random() < 0.2)
    settings = random_settings(rng)
    proof = certificate(check(history, settings, timeout_seconds=1), history)
    if many and rng.random() < 0.7:
        proof = naming_many(rng, proof, history)
    elif rng.random() < 0.7:
        proof = rng.choice(list(forgeries(rng, proof, history)))
    text = json.dumps(proof)
    if rng.random() < 0.5:
        text = with_placeholders(rng, json.dumps(spoiled(rng, proof)), json.dumps)
    content = text.encode(errors="surrogatepass")
    return {PROOF: damaged(rng, content) if rng.random() < 0.1 else content, HISTORY: as_mus(history)}


def as_mus(history: History) -> bytes:
    from tests.inputs.mus import file_of

    return file_of(list(native._blocks(history)))


def long_history(rng: Random) -> History:
    """So many transactions that no counterexample should name all of them."""
    build = HistoryBuilder()
    keys = rng.choice((1, 5, 100))
    for n in range(1, rng.choice(TXNS_MANY) + 1):
        build.transaction(f"s{rng.randrange(5)}")
        for _ in range(rng.choice((1, 2))):
            key = f"k{rng.randrange(keys)}"
            if rng.random() < 0.5:
                build.write(key, 10 * n + rng.randrange(3))
            else:
                build.read(key, 10 * rng.randint(1, n))
    return build.finish()


def naming_many(rng: Random, proof: dict[str, Any], history: History) -> dict[str, Any]:
    numbers = list(range(history.txn_count))
    rng.shuffle(numbers)
    rejected = {**proof, "verdict": "rejected", "counterexample": {"transactions": []}}
    return with_numbers(rejected, numbers[: rng.choice((9, 11, 40, 10_000))] + [number(rng)] * (rng.random() < 0.1))


def read(files: Files, folder: Path, rng: Random) -> str:
    proof = read_certificate(folder / PROOF)
    history = native.read(folder / HISTORY)
    outcome = audit(proof, history)
    if outcome.ok and history.txn_count <= BRUTE_FORCE_TXNS_MAX and not is_true(proof, history):
        return f"a certificate is upheld that is not true: {outcome.message}\n{json.dumps(proof)}"
    return ""


READER = Reader("certificate", make, read, (CertificateError,))
