"""A verifier that only says thank you: it takes streams, acknowledges every fragment, and keeps nothing."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection

import grpc

from mussurana.wire.history_pb2 import Download, Upload

WINDOW_BYTES = 8 << 20
STREAMS_MAX = 64


def answers(uploads: Iterator[Upload], context: object) -> Iterator[Download]:
    for upload in uploads:
        answer = Download()
        if upload.HasField("hello"):
            answer.welcome.protocol = 1
            answer.welcome.window_bytes = WINDOW_BYTES
        else:
            answer.acknowledgement.durable_sequence = upload.fragment.sequence
            answer.acknowledgement.window_bytes = WINDOW_BYTES
        yield answer


def serve(told: Connection) -> None:
    """Serve until the other end of `told` is closed. The port is the first thing to be told."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for whoever started us
    server = grpc.server(ThreadPoolExecutor(STREAMS_MAX))
    handler = grpc.stream_stream_rpc_method_handler(
        answers, request_deserializer=Upload.FromString, response_serializer=Download.SerializeToString
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("mussurana.v1.Ingest", {"Stream": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    told.send(port)
    with suppress(EOFError):
        told.recv()
    server.stop(None)
