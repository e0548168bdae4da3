"""The only module that reads or writes rows of connection tests.

The pod of a test records the result itself. Written here is only the failure of a test whose pod
cannot tell, and only while no result is recorded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from airflow.utils.session import create_session
from sqlalchemy import select

from airflow_kubernetes_callbacks.connection_test import Progress
from airflow_kubernetes_callbacks.redact import presentable

if TYPE_CHECKING:
    from collections.abc import Iterable

#: The width of the column.
MAX_MESSAGE = 2000
#: Ids asked for at once: a database limits the parameters of a query.
_CHUNK = 500


class ConnectionTestStore:
    """Rows of connection tests."""

    def progress(self, test_ids: Iterable[str]) -> dict[str, Progress]:
        """Return what the database says of each test."""
        from airflow.models.connection_test import ACTIVE_STATES, ConnectionTestRequest

        found = dict.fromkeys(test_ids, Progress.ABSENT)
        ids = [UUID(test_id) for test_id in found]
        with create_session(scoped=False) as session:
            for start in range(0, len(ids), _CHUNK):
                query = select(ConnectionTestRequest.id, ConnectionTestRequest.state).where(
                    ConnectionTestRequest.id.in_(ids[start : start + _CHUNK])
                )
                for row_id, state in session.execute(query):
                    found[str(row_id)] = Progress.ACTIVE if state in ACTIVE_STATES else Progress.SETTLED
        return found

    def fail(self, test_id: str, reason: str) -> bool:
        """Record that the test failed, unless a result is recorded; tell whether it was."""
        from airflow.models.connection_test import ACTIVE_STATES, ConnectionTestRequest, ConnectionTestState

        with create_session(scoped=False) as session:
            row = session.get(ConnectionTestRequest, UUID(test_id), with_for_update=True)
            if row is None or row.state not in ACTIVE_STATES:
                return False
            row.state = ConnectionTestState.FAILED
            row.result_message = presentable(reason, MAX_MESSAGE)
            return True
