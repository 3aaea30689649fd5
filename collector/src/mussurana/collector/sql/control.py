"""Statements that begin, end or divide a transaction, and those that change what names mean."""

from __future__ import annotations

from dataclasses import dataclass

from mussurana.collector.recorder import (
    NOT_KNOWN,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    REPEATABLE_READ,
    SERIALIZABLE,
)
from mussurana.collector.sql.tokens import Token

BEGIN, COMMIT, ROLLBACK, SAVEPOINT, RELEASE, ROLLBACK_TO = (
    "begin",
    "commit",
    "rollback",
    "savepoint",
    "release",
    "rollback to",
)
PREPARE, FINISH_PREPARED, SET_TRANSACTION, SET_DEFAULT, SEARCH_PATH, ENCODING, TEMPORARY, SCHEMA = (
    "prepare transaction",
    "finish prepared",
    "set transaction",
    "set the default isolation",
    "search path",
    "encoding",
    "temporary table",
    "schema",
)

LEVELS = {
    "READ UNCOMMITTED": READ_UNCOMMITTED,
    "READ COMMITTED": READ_COMMITTED,
    "REPEATABLE READ": REPEATABLE_READ,
    "SERIALIZABLE": SERIALIZABLE,
}


ASK = -1
"""Of a statement that sets an isolation level, which only the server can tell."""


@dataclass(frozen=True, slots=True)
class Control:
    what: str
    name: str = ""  # of the savepoint, the temporary table or the prepared transaction
    chain: bool = False  # AND CHAIN
    isolation: int = NOT_KNOWN
    committed: bool = False  # with FINISH_PREPARED: COMMIT PREPARED


def parse_control(tokens: list[Token]) -> Control | None:
    """What a statement does to transactions or names; None if nothing."""
    words = [token.word for token in tokens]
    first = words[0] if words else ""
    second = words[1] if len(words) > 1 else ""
    if first == "BEGIN" or (first == "START" and second == "TRANSACTION"):
        return Control(BEGIN, isolation=level_in(" ".join(words)))
    if second == "PREPARED" and first in ("COMMIT", "ROLLBACK"):
        return Control(FINISH_PREPARED, _last_text(tokens), committed=first == "COMMIT")
    if first in ("COMMIT", "END"):
        return Control(COMMIT, chain="CHAIN" in words and "NO" not in words)
    if first in ("ROLLBACK", "ABORT"):
        if "TO" in words:
            return Control(ROLLBACK_TO, _last_name(tokens))
        return Control(ROLLBACK, chain="CHAIN" in words and "NO" not in words)
    if first == "SAVEPOINT":
        return Control(SAVEPOINT, _last_name(tokens))
    if first == "RELEASE":
        return Control(RELEASE, _last_name(tokens))
    if first == "PREPARE" and second == "TRANSACTION":
        return Control(PREPARE, _last_text(tokens))
    if first == "SET" and "TRANSACTION" in words[1:3]:
        return Control(SET_TRANSACTION, isolation=level_in(" ".join(words)))
    if (level := _level_control(tokens, words)) is not None:
        return level
    if (
        (first in ("SET", "RESET") and {"SEARCH_PATH", "SCHEMA"} & set(words[1:3]))
        or (first in ("RESET", "DISCARD") and second == "ALL")  # SET CONSTRAINTS ALL is about something else
        or ("SET_CONFIG" in words and any(token.text == "search_path" for token in tokens))
    ):
        return Control(SEARCH_PATH)
    if first == "SET" and {"CLIENT_ENCODING", "NAMES"} & set(words[1:3]):
        return Control(ENCODING)
    if first == "CREATE" and second in ("TEMP", "TEMPORARY", "LOCAL"):
        return Control(TEMPORARY, _created_name(tokens))
    if first in ("CREATE", "ALTER", "DROP"):
        return Control(SCHEMA)
    return None


def _level_control(tokens: list[Token], words: list[str]) -> Control | None:
    """What a statement does to the isolation level of this transaction or of later ones; None if nothing."""
    if "SET_CONFIG" in words:
        names = [token.text for token in tokens if token.literal]
        at = words.index("SET_CONFIG") + 2
        if "default_transaction_isolation" in names or (at < len(tokens) and not tokens[at].literal):
            return Control(SET_DEFAULT, isolation=ASK)
        return Control(SET_TRANSACTION, isolation=ASK) if "transaction_isolation" in names else None
    if words[0] not in ("SET", "RESET"):
        return None
    at = 2 if words[1:2] in (["SESSION"], ["LOCAL"]) else 1
    name = words[at] if at < len(words) else ""
    if name == "CHARACTERISTICS":
        level = level_in(" ".join(words))
        return Control(SET_DEFAULT, isolation=level) if level else None
    if name not in ("DEFAULT_TRANSACTION_ISOLATION", "TRANSACTION_ISOLATION"):
        return None
    level = LEVELS.get(tokens[-1].text.upper() if tokens[-1].literal else words[-1], ASK)
    if name == "TRANSACTION_ISOLATION":
        return Control(SET_TRANSACTION, isolation=level)
    return None if words[1] == "LOCAL" else Control(SET_DEFAULT, isolation=level)  # LOCAL ends with the transaction


def level_in(words: str) -> int:
    """The isolation level that a BEGIN or SET TRANSACTION asks for."""
    return next((level for name, level in LEVELS.items() if name in words), NOT_KNOWN)


def _last_name(tokens: list[Token]) -> str:
    names = [token for token in tokens if token.is_name]
    return names[-1].name if names else ""


def _last_text(tokens: list[Token]) -> str:
    literals = [token.text for token in tokens if token.literal]
    return literals[-1] if literals else ""


def _created_name(tokens: list[Token]) -> str:
    for index, token in enumerate(tokens):
        if token.word in ("TABLE", "VIEW", "SEQUENCE"):
            rest = [each for each in tokens[index + 1 :] if each.word not in ("IF", "NOT", "EXISTS")]
            return rest[0].name if rest else ""
    return ""
