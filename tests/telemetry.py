"""Backends of metrics and traces that a test can start: a StatsD listener and an OTLP collector."""

from __future__ import annotations

import contextlib
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Sample(NamedTuple):
    """One line of the StatsD protocol."""

    name: str
    value: float
    kind: str


class StatsdListener:
    """Listens on UDP, as ``statsd`` and Prometheus' statsd exporter do."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._samples: list[Sample] = []
        self._thread = threading.Thread(target=self._listen, name="statsd", daemon=True)

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    def __enter__(self) -> StatsdListener:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
            last.sendto(b"", ("127.0.0.1", self.port))
        self._thread.join()
        self._socket.close()

    def _listen(self) -> None:
        while packet := self._socket.recv(65536):
            for line in packet.decode().splitlines():
                name, _, rest = line.partition(":")
                value, kind, *_ = rest.split("|")
                self._samples.append(Sample(name, float(value), kind))

    def samples(self, name: str) -> list[Sample]:
        return [sample for sample in self._samples if sample.name == name]

    def total(self, name: str) -> float:
        return sum(sample.value for sample in self.samples(name))

    def names(self) -> set[str]:
        return {sample.name for sample in self._samples}


class OtlpCollector:
    """Takes OTLP over HTTP, as an OpenTelemetry collector does."""

    def __init__(self) -> None:
        self._bodies: list[tuple[str, bytes]] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector._bodies.append((self.path, _decoded(body, self.headers.get("Content-Encoding"))))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="otlp", daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> OtlpCollector:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def metrics(self) -> dict[str, Any]:
        """Return the metrics by name, each as it came last."""
        found = {}
        for path, body in list(self._bodies):
            if path == "/v1/metrics":
                for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                    for scope in resource.scope_metrics:
                        found.update({metric.name: metric for metric in scope.metrics})
        return found

    def spans(self) -> list[Any]:
        return [
            span
            for path, body in list(self._bodies)
            if path == "/v1/traces"
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


def _decoded(body: bytes, encoding: str | None) -> bytes:
    import gzip

    return gzip.decompress(body) if encoding == "gzip" else body


def attributes_of(item: Any) -> dict[str, str | int]:
    """Return the attributes of a span or of a data point."""
    return {
        attribute.key: attribute.value.string_value or attribute.value.int_value
        for attribute in item.attributes
    }


def sent_to(statsd: StatsdListener, collector: OtlpCollector) -> dict[str, dict[str, Any]]:
    """Return how a scheduler is started that sends its metrics and spans there: ``config`` and ``environment``."""
    return {
        "config": {
            "metrics.statsd_on": True,
            "metrics.statsd_host": "127.0.0.1",
            "metrics.statsd_port": statsd.port,
            "traces.otel_on": True,
        },
        "environment": {
            "OTEL_TRACES_EXPORTER": "otlp_proto_http",
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_BSP_SCHEDULE_DELAY": "500",
        },
    }
