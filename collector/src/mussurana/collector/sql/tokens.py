"""The tokens of a statement with their places in its text, and the driver's placeholders among them.

sqlglot's tokenizer knows quoting, comments and dollar strings; the driver's placeholders it need not know: each is
masked by a number and blanks of the same length before, so that offsets stay true. Drivers replace placeholders
wherever they stand, in strings and comments too, and so does the mask.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from sqlglot.dialects.postgres import Postgres
from sqlglot.dialects.sqlite import SQLite
from sqlglot.tokenizer_core import TokenType

# How a driver marks parameters. NONE is a call without parameters, where psycopg takes the text as it is.
NONE, FORMAT, RAW, QMARK = "none", "format", "raw", "qmark"

POSTGRES, SQLITE = "postgres", "sqlite"


class _PostgresTokenizer(Postgres.Tokenizer):
    COMMANDS: ClassVar[set[TokenType]] = set()  # after these words sqlglot would take the rest for one string


class _SQLiteTokenizer(SQLite.Tokenizer):
    COMMANDS: ClassVar[set[TokenType]] = set()


_TOKENIZERS = {POSTGRES: _PostgresTokenizer, SQLITE: _SQLiteTokenizer}

_FORMAT = re.compile(r"%(?:\(([^)]+)\).|(.))", re.DOTALL)
_RAW = re.compile(r"\$(\d+)")
_QMARK = re.compile(r"\?(\d*)|[:@$]([A-Za-z_]\w*)")

# Words that cannot name a table or a column without quotes, in PostgreSQL and in SQLite. Everything else can.
_RESERVED_WORDS = """
    ALL ANALYSE ANALYZE AND ANY ARRAY AS ASC ASYMMETRIC AUTHORIZATION BINARY BOTH CASE CAST CHECK COLLATE COLLATION
    COLUMN CONCURRENTLY CONSTRAINT CREATE CROSS CURRENT_CATALOG CURRENT_DATE CURRENT_ROLE CURRENT_SCHEMA CURRENT_TIME
    CURRENT_TIMESTAMP CURRENT_USER DEFAULT DEFERRABLE DESC DISTINCT DO ELSE END EXCEPT FALSE FETCH FOR FOREIGN FREEZE
    FROM FULL GRANT GROUP HAVING ILIKE IN INITIALLY INNER INTERSECT INTO IS ISNULL JOIN LATERAL LEADING LEFT LIKE
    LIMIT LOCALTIME LOCALTIMESTAMP NATURAL NOT NOTNULL NULL OFFSET ON ONLY OR ORDER OUTER OVERLAPS PLACING PRIMARY
    REFERENCES RETURNING RIGHT SELECT SESSION_USER SIMILAR SOME SYMMETRIC SYSTEM_USER TABLE TABLESAMPLE THEN TO
    TRAILING TRUE UNION UNIQUE USER USING VARIADIC VERBOSE WHEN WHERE WINDOW WITH
"""
RESERVED = frozenset(_RESERVED_WORDS.split())

_PUNCTUATION = {
    TokenType.L_PAREN: "(",
    TokenType.R_PAREN: ")",
    TokenType.COMMA: ",",
    TokenType.DOT: ".",
    TokenType.SEMICOLON: ";",
    TokenType.STAR: "*",
    TokenType.EQ: "=",
}
_LITERALS = frozenset(
    {
        TokenType.STRING,
        TokenType.NUMBER,
        TokenType.HEREDOC_STRING,
        TokenType.RAW_STRING,
        TokenType.BYTE_STRING,
        TokenType.UNICODE_STRING,
        TokenType.BIT_STRING,
        TokenType.HEX_STRING,
        TokenType.NATIONAL_STRING,
    }
)


_CLOSED_BY = {"(": ")", "[": "]"}


class NotUnderstood(Exception):
    """A statement that is not what the rewriting knows. It runs untouched and is counted under this name."""


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A parameter in the text: its name, or its number from 0 on."""

    start: int
    end: int
    item: str | int


@dataclass(slots=True)
class Token:
    """`word` is the upper-case text of an unquoted word or a punctuation mark, and empty for anything quoted."""

    word: str
    text: str
    start: int
    end: int  # the offset after it
    quoted: bool  # a quoted identifier
    literal: bool
    placeholder: Placeholder | None = None
    closing: int = -1  # of an opening parenthesis or bracket: the index of the one that closes it

    @property
    def is_name(self) -> bool:
        return self.quoted or (bool(self.word) and self.word.isidentifier() and self.word not in RESERVED)

    @property
    def name(self) -> str:
        """As the database stores it."""
        return self.text if self.quoted else self.text.lower()


def find_placeholders(text: str, style: str) -> list[Placeholder]:
    if style == FORMAT:
        found, count = [], 0
        for match in _FORMAT.finditer(text):
            if match[1] is not None:
                found.append(Placeholder(match.start(), match.end(), match[1]))
            elif match[2] in "sbt":
                found.append(Placeholder(match.start(), match.end(), count))
                count += 1
        return found
    if style == RAW:
        return [Placeholder(match.start(), match.end(), int(match[1]) - 1) for match in _RAW.finditer(text)]
    return []


def tokenize(text: str, style: str, dialect: str) -> tuple[list[Token], list[Placeholder]]:
    """Tokens without comments, and the placeholders in order. Raises NotUnderstood."""
    masked = text
    placeholders = find_placeholders(text, style)
    if style == FORMAT:
        masked = _FORMAT.sub(_mask, text)
    elif style == RAW:
        masked = _RAW.sub(_blank, text)
    at = {each.start: each for each in placeholders}
    try:
        raw = _TOKENIZERS[dialect]().tokenize(masked)
    except Exception as error:
        raise NotUnderstood("text that cannot be read") from error
    tokens: list[Token] = []
    open_at: list[int] = []
    skip_until = -1
    for each in raw:
        start, end, kind = each.start, each.end + 1, each.token_type
        if start < skip_until:
            continue
        if style == QMARK and (found := _qmark(masked, start, kind, len(placeholders))) is not None:
            placeholders.append(found)
            at[found.start] = found
        if (placeholder := at.get(start)) is not None:
            skip_until = placeholder.end
            tokens.append(Token("", "", start, placeholder.end, False, False, placeholder))
            continue
        literal = kind in _LITERALS
        quoted = kind == TokenType.IDENTIFIER
        word = "" if literal or quoted else _PUNCTUATION.get(kind) or each.text.upper()
        token = Token(word, each.text, start, end, quoted, literal)
        if word in _CLOSED_BY:
            open_at.append(len(tokens))
        elif word in (")", "]"):
            if not open_at or _CLOSED_BY[tokens[open_at[-1]].word] != word:
                raise NotUnderstood("unbalanced parentheses")
            tokens[open_at.pop()].closing = len(tokens)
        tokens.append(token)
    if open_at:
        raise NotUnderstood("unbalanced parentheses")
    if style == RAW:  # the server, unlike drivers, knows a parameter from what looks like one in a string
        placeholders = [token.placeholder for token in tokens if token.placeholder is not None]
    return tokens, placeholders


def _mask(match: re.Match[str]) -> str:
    if match[1] is None and match[2] not in "sbt":
        return "% " if match[2] == "%" else match[0]
    return _blank(match)


def _blank(match: re.Match[str]) -> str:
    """A number of the same length, since `$1,$2` would look like the start of a dollar string."""
    return "0".ljust(len(match[0]))


def _qmark(text: str, start: int, kind: TokenType, count: int) -> Placeholder | None:
    if kind not in (TokenType.PLACEHOLDER, TokenType.COLON, TokenType.PARAMETER):
        return None
    match = _QMARK.match(text, start)
    if match is None:
        return None
    if match[2] is not None:
        return Placeholder(start, match.end(), match[2])
    return Placeholder(start, match.end(), int(match[1]) - 1 if match[1] else count)


def words_of(text: str) -> set[str]:
    """Every word of a text that could be a name, also inside strings: the body of a DO block is one."""
    return {word.lower() for word in re.findall(r"\w+", text)}
