from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class OpKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    READ: _ClassVar[OpKind]
    WRITE: _ClassVar[OpKind]
    UPDATE: _ClassVar[OpKind]
    DELETE: _ClassVar[OpKind]
    READ_ABSENT: _ClassVar[OpKind]
    INSERT: _ClassVar[OpKind]

class Isolation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NOT_KNOWN: _ClassVar[Isolation]
    READ_UNCOMMITTED: _ClassVar[Isolation]
    READ_COMMITTED: _ClassVar[Isolation]
    REPEATABLE_READ: _ClassVar[Isolation]
    SERIALIZABLE: _ClassVar[Isolation]
READ: OpKind
WRITE: OpKind
UPDATE: OpKind
DELETE: OpKind
READ_ABSENT: OpKind
INSERT: OpKind
NOT_KNOWN: Isolation
READ_UNCOMMITTED: Isolation
READ_COMMITTED: Isolation
REPEATABLE_READ: Isolation
SERIALIZABLE: Isolation

class Upload(_message.Message):
    __slots__ = ("hello", "fragment")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    FRAGMENT_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    fragment: Fragment
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., fragment: _Optional[_Union[Fragment, _Mapping]] = ...) -> None: ...

class Download(_message.Message):
    __slots__ = ("welcome", "acknowledgement")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGEMENT_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    acknowledgement: Acknowledgement
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., acknowledgement: _Optional[_Union[Acknowledgement, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol", "collector", "name", "database", "version", "first_sequence", "secret", "recorded")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    COLLECTOR_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DATABASE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    RECORDED_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    collector: bytes
    name: str
    database: str
    version: str
    first_sequence: int
    secret: bytes
    recorded: Database
    def __init__(self, protocol: _Optional[int] = ..., collector: _Optional[bytes] = ..., name: _Optional[str] = ..., database: _Optional[str] = ..., version: _Optional[str] = ..., first_sequence: _Optional[int] = ..., secret: _Optional[bytes] = ..., recorded: _Optional[_Union[Database, _Mapping]] = ...) -> None: ...

class Database(_message.Message):
    __slots__ = ("identity", "name")
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    identity: str
    name: str
    def __init__(self, identity: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("protocol", "durable_sequence", "window_bytes")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    DURABLE_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    WINDOW_BYTES_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    durable_sequence: int
    window_bytes: int
    def __init__(self, protocol: _Optional[int] = ..., durable_sequence: _Optional[int] = ..., window_bytes: _Optional[int] = ...) -> None: ...

class Acknowledgement(_message.Message):
    __slots__ = ("durable_sequence", "window_bytes")
    DURABLE_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    WINDOW_BYTES_FIELD_NUMBER: _ClassVar[int]
    durable_sequence: int
    window_bytes: int
    def __init__(self, durable_sequence: _Optional[int] = ..., window_bytes: _Optional[int] = ...) -> None: ...

class Fragment(_message.Message):
    __slots__ = ("sequence", "sealed_ns", "session_event", "txn_count", "txn_session", "txn_status", "txn_begin_ns", "txn_begun_ns", "txn_commit_ns", "txn_committed_ns", "txn_op_count", "txn_isolation", "op_kind", "op_key", "op_version", "op_previous", "op_statement", "fence_epoch", "write_ids", "key_name", "statement", "gap", "coverage", "fences", "beginning", "collector_name", "database", "xid_horizon")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SEALED_NS_FIELD_NUMBER: _ClassVar[int]
    SESSION_EVENT_FIELD_NUMBER: _ClassVar[int]
    TXN_COUNT_FIELD_NUMBER: _ClassVar[int]
    TXN_SESSION_FIELD_NUMBER: _ClassVar[int]
    TXN_STATUS_FIELD_NUMBER: _ClassVar[int]
    TXN_BEGIN_NS_FIELD_NUMBER: _ClassVar[int]
    TXN_BEGUN_NS_FIELD_NUMBER: _ClassVar[int]
    TXN_COMMIT_NS_FIELD_NUMBER: _ClassVar[int]
    TXN_COMMITTED_NS_FIELD_NUMBER: _ClassVar[int]
    TXN_OP_COUNT_FIELD_NUMBER: _ClassVar[int]
    TXN_ISOLATION_FIELD_NUMBER: _ClassVar[int]
    OP_KIND_FIELD_NUMBER: _ClassVar[int]
    OP_KEY_FIELD_NUMBER: _ClassVar[int]
    OP_VERSION_FIELD_NUMBER: _ClassVar[int]
    OP_PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    OP_STATEMENT_FIELD_NUMBER: _ClassVar[int]
    FENCE_EPOCH_FIELD_NUMBER: _ClassVar[int]
    WRITE_IDS_FIELD_NUMBER: _ClassVar[int]
    KEY_NAME_FIELD_NUMBER: _ClassVar[int]
    STATEMENT_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    COVERAGE_FIELD_NUMBER: _ClassVar[int]
    FENCES_FIELD_NUMBER: _ClassVar[int]
    BEGINNING_FIELD_NUMBER: _ClassVar[int]
    COLLECTOR_NAME_FIELD_NUMBER: _ClassVar[int]
    DATABASE_FIELD_NUMBER: _ClassVar[int]
    XID_HORIZON_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    sealed_ns: int
    session_event: _containers.RepeatedCompositeFieldContainer[SessionEvent]
    txn_count: int
    txn_session: bytes
    txn_status: bytes
    txn_begin_ns: bytes
    txn_begun_ns: bytes
    txn_commit_ns: bytes
    txn_committed_ns: bytes
    txn_op_count: bytes
    txn_isolation: bytes
    op_kind: bytes
    op_key: bytes
    op_version: bytes
    op_previous: bytes
    op_statement: bytes
    fence_epoch: bytes
    write_ids: _containers.RepeatedCompositeFieldContainer[WriteIds]
    key_name: _containers.RepeatedCompositeFieldContainer[KeyName]
    statement: _containers.RepeatedCompositeFieldContainer[Statement]
    gap: _containers.RepeatedCompositeFieldContainer[Gap]
    coverage: _containers.RepeatedCompositeFieldContainer[Coverage]
    fences: Fences
    beginning: _containers.RepeatedCompositeFieldContainer[Beginning]
    collector_name: str
    database: Database
    xid_horizon: int
    def __init__(self, sequence: _Optional[int] = ..., sealed_ns: _Optional[int] = ..., session_event: _Optional[_Iterable[_Union[SessionEvent, _Mapping]]] = ..., txn_count: _Optional[int] = ..., txn_session: _Optional[bytes] = ..., txn_status: _Optional[bytes] = ..., txn_begin_ns: _Optional[bytes] = ..., txn_begun_ns: _Optional[bytes] = ..., txn_commit_ns: _Optional[bytes] = ..., txn_committed_ns: _Optional[bytes] = ..., txn_op_count: _Optional[bytes] = ..., txn_isolation: _Optional[bytes] = ..., op_kind: _Optional[bytes] = ..., op_key: _Optional[bytes] = ..., op_version: _Optional[bytes] = ..., op_previous: _Optional[bytes] = ..., op_statement: _Optional[bytes] = ..., fence_epoch: _Optional[bytes] = ..., write_ids: _Optional[_Iterable[_Union[WriteIds, _Mapping]]] = ..., key_name: _Optional[_Iterable[_Union[KeyName, _Mapping]]] = ..., statement: _Optional[_Iterable[_Union[Statement, _Mapping]]] = ..., gap: _Optional[_Iterable[_Union[Gap, _Mapping]]] = ..., coverage: _Optional[_Iterable[_Union[Coverage, _Mapping]]] = ..., fences: _Optional[_Union[Fences, _Mapping]] = ..., beginning: _Optional[_Iterable[_Union[Beginning, _Mapping]]] = ..., collector_name: _Optional[str] = ..., database: _Optional[_Union[Database, _Mapping]] = ..., xid_horizon: _Optional[int] = ...) -> None: ...

class WriteIds(_message.Message):
    __slots__ = ("tag", "settled", "drawn")
    TAG_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    DRAWN_FIELD_NUMBER: _ClassVar[int]
    tag: int
    settled: int
    drawn: int
    def __init__(self, tag: _Optional[int] = ..., settled: _Optional[int] = ..., drawn: _Optional[int] = ...) -> None: ...

class SessionEvent(_message.Message):
    __slots__ = ("what", "session", "name", "fenced")
    class What(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        OPEN: _ClassVar[SessionEvent.What]
        IDLE: _ClassVar[SessionEvent.What]
        CLOSE: _ClassVar[SessionEvent.What]
    OPEN: SessionEvent.What
    IDLE: SessionEvent.What
    CLOSE: SessionEvent.What
    WHAT_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    FENCED_FIELD_NUMBER: _ClassVar[int]
    what: SessionEvent.What
    session: int
    name: str
    fenced: bool
    def __init__(self, what: _Optional[_Union[SessionEvent.What, str]] = ..., session: _Optional[int] = ..., name: _Optional[str] = ..., fenced: bool = ...) -> None: ...

class KeyName(_message.Message):
    __slots__ = ("key", "name")
    KEY_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    key: int
    name: str
    def __init__(self, key: _Optional[int] = ..., name: _Optional[str] = ...) -> None: ...

class Statement(_message.Message):
    __slots__ = ("number", "text")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    number: int
    text: str
    def __init__(self, number: _Optional[int] = ..., text: _Optional[str] = ...) -> None: ...

class Gap(_message.Message):
    __slots__ = ("reason", "txn_count", "session", "write_ids")
    REASON_FIELD_NUMBER: _ClassVar[int]
    TXN_COUNT_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    WRITE_IDS_FIELD_NUMBER: _ClassVar[int]
    reason: str
    txn_count: int
    session: _containers.RepeatedScalarFieldContainer[int]
    write_ids: _containers.RepeatedCompositeFieldContainer[WriteIdRange]
    def __init__(self, reason: _Optional[str] = ..., txn_count: _Optional[int] = ..., session: _Optional[_Iterable[int]] = ..., write_ids: _Optional[_Iterable[_Union[WriteIdRange, _Mapping]]] = ...) -> None: ...

class WriteIdRange(_message.Message):
    __slots__ = ("tag", "first", "end")
    TAG_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    tag: int
    first: int
    end: int
    def __init__(self, tag: _Optional[int] = ..., first: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class Coverage(_message.Message):
    __slots__ = ("table", "shape", "observed", "statement_count")
    class Observed(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        FULL: _ClassVar[Coverage.Observed]
        PARTIAL: _ClassVar[Coverage.Observed]
        UNOBSERVED_READ: _ClassVar[Coverage.Observed]
        UNOBSERVED_WRITE: _ClassVar[Coverage.Observed]
    FULL: Coverage.Observed
    PARTIAL: Coverage.Observed
    UNOBSERVED_READ: Coverage.Observed
    UNOBSERVED_WRITE: Coverage.Observed
    TABLE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_FIELD_NUMBER: _ClassVar[int]
    STATEMENT_COUNT_FIELD_NUMBER: _ClassVar[int]
    table: str
    shape: str
    observed: Coverage.Observed
    statement_count: int
    def __init__(self, table: _Optional[str] = ..., shape: _Optional[str] = ..., observed: _Optional[_Union[Coverage.Observed, str]] = ..., statement_count: _Optional[int] = ...) -> None: ...

class Beginning(_message.Message):
    __slots__ = ("table",)
    TABLE_FIELD_NUMBER: _ClassVar[int]
    table: str
    def __init__(self, table: _Optional[str] = ...) -> None: ...

class Fences(_message.Message):
    __slots__ = ("issued", "failed", "seconds")
    ISSUED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    issued: int
    failed: int
    seconds: float
    def __init__(self, issued: _Optional[int] = ..., failed: _Optional[int] = ..., seconds: _Optional[float] = ...) -> None: ...
