from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusReply(_message.Message):
    __slots__ = ("version", "uptime_seconds", "state", "trouble", "lag_seconds", "log_behind_bytes", "log_bytes", "checkpoint_bytes", "checkpoint_ns", "violations", "waiting", "unknown_txns", "lost_txns", "in_doubt", "sessions_open", "sessions_idle", "level", "collector", "unchecked_reads", "now_ns", "alarms_waiting", "alarms_withdrawn", "alarm_wait_seconds", "database")
    class UncheckedReadsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    UPTIME_SECONDS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    LAG_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LOG_BEHIND_BYTES_FIELD_NUMBER: _ClassVar[int]
    LOG_BYTES_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_BYTES_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_NS_FIELD_NUMBER: _ClassVar[int]
    VIOLATIONS_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_TXNS_FIELD_NUMBER: _ClassVar[int]
    LOST_TXNS_FIELD_NUMBER: _ClassVar[int]
    IN_DOUBT_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_OPEN_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_IDLE_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    COLLECTOR_FIELD_NUMBER: _ClassVar[int]
    UNCHECKED_READS_FIELD_NUMBER: _ClassVar[int]
    NOW_NS_FIELD_NUMBER: _ClassVar[int]
    ALARMS_WAITING_FIELD_NUMBER: _ClassVar[int]
    ALARMS_WITHDRAWN_FIELD_NUMBER: _ClassVar[int]
    ALARM_WAIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    DATABASE_FIELD_NUMBER: _ClassVar[int]
    version: str
    uptime_seconds: float
    state: str
    trouble: _containers.RepeatedScalarFieldContainer[str]
    lag_seconds: float
    log_behind_bytes: int
    log_bytes: int
    checkpoint_bytes: int
    checkpoint_ns: int
    violations: int
    waiting: int
    unknown_txns: int
    lost_txns: int
    in_doubt: int
    sessions_open: int
    sessions_idle: int
    level: _containers.RepeatedCompositeFieldContainer[LevelStatus]
    collector: _containers.RepeatedCompositeFieldContainer[CollectorStatus]
    unchecked_reads: _containers.ScalarMap[str, int]
    now_ns: int
    alarms_waiting: int
    alarms_withdrawn: int
    alarm_wait_seconds: float
    database: str
    def __init__(self, version: _Optional[str] = ..., uptime_seconds: _Optional[float] = ..., state: _Optional[str] = ..., trouble: _Optional[_Iterable[str]] = ..., lag_seconds: _Optional[float] = ..., log_behind_bytes: _Optional[int] = ..., log_bytes: _Optional[int] = ..., checkpoint_bytes: _Optional[int] = ..., checkpoint_ns: _Optional[int] = ..., violations: _Optional[int] = ..., waiting: _Optional[int] = ..., unknown_txns: _Optional[int] = ..., lost_txns: _Optional[int] = ..., in_doubt: _Optional[int] = ..., sessions_open: _Optional[int] = ..., sessions_idle: _Optional[int] = ..., level: _Optional[_Iterable[_Union[LevelStatus, _Mapping]]] = ..., collector: _Optional[_Iterable[_Union[CollectorStatus, _Mapping]]] = ..., unchecked_reads: _Optional[_Mapping[str, int]] = ..., now_ns: _Optional[int] = ..., alarms_waiting: _Optional[int] = ..., alarms_withdrawn: _Optional[int] = ..., alarm_wait_seconds: _Optional[float] = ..., database: _Optional[str] = ...) -> None: ...

class LevelStatus(_message.Message):
    __slots__ = ("level", "epoch", "epoch_reached_ns", "retained", "table_keys", "last_round")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    EPOCH_REACHED_NS_FIELD_NUMBER: _ClassVar[int]
    RETAINED_FIELD_NUMBER: _ClassVar[int]
    TABLE_KEYS_FIELD_NUMBER: _ClassVar[int]
    LAST_ROUND_FIELD_NUMBER: _ClassVar[int]
    level: str
    epoch: int
    epoch_reached_ns: int
    retained: int
    table_keys: int
    last_round: Round
    def __init__(self, level: _Optional[str] = ..., epoch: _Optional[int] = ..., epoch_reached_ns: _Optional[int] = ..., retained: _Optional[int] = ..., table_keys: _Optional[int] = ..., last_round: _Optional[_Union[Round, _Mapping]] = ...) -> None: ...

class CollectorStatus(_message.Message):
    __slots__ = ("id", "name", "database", "version", "connected", "durable_sequence", "fragments", "last_seen_ns")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DATABASE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    DURABLE_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    FRAGMENTS_FIELD_NUMBER: _ClassVar[int]
    LAST_SEEN_NS_FIELD_NUMBER: _ClassVar[int]
    id: bytes
    name: str
    database: str
    version: str
    connected: bool
    durable_sequence: int
    fragments: int
    last_seen_ns: int
    def __init__(self, id: _Optional[bytes] = ..., name: _Optional[str] = ..., database: _Optional[str] = ..., version: _Optional[str] = ..., connected: bool = ..., durable_sequence: _Optional[int] = ..., fragments: _Optional[int] = ..., last_seen_ns: _Optional[int] = ...) -> None: ...

class Round(_message.Message):
    __slots__ = ("number", "level", "verdict", "reason", "violation", "further_violations", "epoch", "txn_count", "retained", "forgotten", "finished_ns", "seconds", "lag_median_seconds", "lag_p99_seconds", "read_count", "unchecked")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    VIOLATION_FIELD_NUMBER: _ClassVar[int]
    FURTHER_VIOLATIONS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TXN_COUNT_FIELD_NUMBER: _ClassVar[int]
    RETAINED_FIELD_NUMBER: _ClassVar[int]
    FORGOTTEN_FIELD_NUMBER: _ClassVar[int]
    FINISHED_NS_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    LAG_MEDIAN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LAG_P99_SECONDS_FIELD_NUMBER: _ClassVar[int]
    READ_COUNT_FIELD_NUMBER: _ClassVar[int]
    UNCHECKED_FIELD_NUMBER: _ClassVar[int]
    number: int
    level: str
    verdict: str
    reason: str
    violation: _containers.RepeatedScalarFieldContainer[str]
    further_violations: int
    epoch: int
    txn_count: int
    retained: int
    forgotten: int
    finished_ns: int
    seconds: float
    lag_median_seconds: float
    lag_p99_seconds: float
    read_count: int
    unchecked: _containers.RepeatedCompositeFieldContainer[Unchecked]
    def __init__(self, number: _Optional[int] = ..., level: _Optional[str] = ..., verdict: _Optional[str] = ..., reason: _Optional[str] = ..., violation: _Optional[_Iterable[str]] = ..., further_violations: _Optional[int] = ..., epoch: _Optional[int] = ..., txn_count: _Optional[int] = ..., retained: _Optional[int] = ..., forgotten: _Optional[int] = ..., finished_ns: _Optional[int] = ..., seconds: _Optional[float] = ..., lag_median_seconds: _Optional[float] = ..., lag_p99_seconds: _Optional[float] = ..., read_count: _Optional[int] = ..., unchecked: _Optional[_Iterable[_Union[Unchecked, _Mapping]]] = ...) -> None: ...

class Unchecked(_message.Message):
    __slots__ = ("reason", "collector", "table", "reads")
    REASON_FIELD_NUMBER: _ClassVar[int]
    COLLECTOR_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    READS_FIELD_NUMBER: _ClassVar[int]
    reason: str
    collector: str
    table: str
    reads: int
    def __init__(self, reason: _Optional[str] = ..., collector: _Optional[str] = ..., table: _Optional[str] = ..., reads: _Optional[int] = ...) -> None: ...

class Violation(_message.Message):
    __slots__ = ("id", "level", "round", "epoch", "found_ns", "anomaly", "adya", "summary", "state", "withdrawn")
    ID_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FOUND_NS_FIELD_NUMBER: _ClassVar[int]
    ANOMALY_FIELD_NUMBER: _ClassVar[int]
    ADYA_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    WITHDRAWN_FIELD_NUMBER: _ClassVar[int]
    id: str
    level: str
    round: int
    epoch: int
    found_ns: int
    anomaly: str
    adya: str
    summary: str
    state: str
    withdrawn: str
    def __init__(self, id: _Optional[str] = ..., level: _Optional[str] = ..., round: _Optional[int] = ..., epoch: _Optional[int] = ..., found_ns: _Optional[int] = ..., anomaly: _Optional[str] = ..., adya: _Optional[str] = ..., summary: _Optional[str] = ..., state: _Optional[str] = ..., withdrawn: _Optional[str] = ...) -> None: ...

class VerdictsRequest(_message.Message):
    __slots__ = ("limit", "level", "verdict", "since_ns")
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    SINCE_NS_FIELD_NUMBER: _ClassVar[int]
    limit: int
    level: str
    verdict: str
    since_ns: int
    def __init__(self, limit: _Optional[int] = ..., level: _Optional[str] = ..., verdict: _Optional[str] = ..., since_ns: _Optional[int] = ...) -> None: ...

class VerdictsReply(_message.Message):
    __slots__ = ("round", "violation")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    VIOLATION_FIELD_NUMBER: _ClassVar[int]
    round: _containers.RepeatedCompositeFieldContainer[Round]
    violation: _containers.RepeatedCompositeFieldContainer[Violation]
    def __init__(self, round: _Optional[_Iterable[_Union[Round, _Mapping]]] = ..., violation: _Optional[_Iterable[_Union[Violation, _Mapping]]] = ...) -> None: ...

class ExplainRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class ExplainReply(_message.Message):
    __slots__ = ("violation", "counterexample")
    VIOLATION_FIELD_NUMBER: _ClassVar[int]
    COUNTEREXAMPLE_FIELD_NUMBER: _ClassVar[int]
    violation: Violation
    counterexample: str
    def __init__(self, violation: _Optional[_Union[Violation, _Mapping]] = ..., counterexample: _Optional[str] = ...) -> None: ...
