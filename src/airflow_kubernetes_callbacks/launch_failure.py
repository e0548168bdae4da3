"""What the failure of a launch means, in words for the callback's row. Pure."""

from __future__ import annotations

import dataclasses
import re
from decimal import Decimal

from airflow_kubernetes_callbacks.api_errors import ApiAnswer, ApiFailure, classify, remedy
from airflow_kubernetes_callbacks.errors import LaunchDelayedError, LaunchError, NameTakenError

#: How Kubernetes words that a quota has no room (its resourcequota admission plugin); each part is a list of
#: "resource=quantity".
_NO_ROOM = re.compile(
    r"exceeded quota: .*?, requested: (?P<requested>.*?), used: .*?, limited: (?P<limited>.*)"
)
_QUANTITY = re.compile(
    r"(?P<number>\d{1,24}(?:\.\d{1,24})?)(?P<unit>[KMGTPE]i|[numkMGTPE]|[eE][+-]?\d{1,2})?"
)
_TOO_LARGE_FOR_QUOTA = (
    "That is more than the quota allows in all: ask for less in [kubernetes_callbacks] resources, a rule or the pod "
    "template, or raise the quota."
)


def never_fits(message: str) -> bool:
    """Tell whether a quota is exceeded by what is asked for alone, however much of it others give back.

    A limit of nothing does not count: it may be there to keep pods out for a while.
    """
    if (found := _NO_ROOM.search(message)) is None:
        return False
    requested, limited = _quantities(found["requested"]), _quantities(found["limited"])
    return any(0 < limit < requested.get(resource, Decimal(0)) for resource, limit in limited.items())


def _quantities(text: str) -> dict[str, Decimal]:
    """Return the quantities in a list of "resource=quantity"; what is not understood is left out."""
    pairs = (item.strip().partition("=") for item in text.split(","))
    return {
        resource: _number(found["number"], found["unit"] or "")
        for resource, _, quantity in pairs
        if (found := _QUANTITY.fullmatch(quantity))
    }


def _number(number: str, unit: str) -> Decimal:
    if unit.endswith("i"):
        return Decimal(number) * Decimal(1024) ** ("KMGTPE".index(unit[0]) + 1)
    if unit[1:]:
        return Decimal(number + unit)
    exponent = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}[unit]
    return Decimal(number).scaleb(exponent)


def without_workload(error: BaseException) -> BaseException:
    """Return what *error* means, which came when a row was read, for its workload or right before the launch.

    A driver may raise anything over a connection that breaks (PyMySQL/PyMySQL#1013: ``AttributeError``), and
    no request was made: so it is tried again, whatever it is.
    """
    if isinstance(error, LaunchError) or not isinstance(error, Exception):
        return error
    delayed = LaunchDelayedError(f"the callback's row could not be read: {classify(error).message}")
    delayed.__cause__ = error
    return delayed


def launch_failure(error: BaseException) -> ApiFailure:
    """Return what the failure of a launch means, worded for ``callback.output``.

    ``ALREADY_EXISTS`` is a name that does not come free; ``may_have_arrived`` says that the pod which has it may
    be this callback's.
    """
    if isinstance(error, NameTakenError):
        return ApiFailure(ApiAnswer.ALREADY_EXISTS, 409, str(error), may_have_arrived=error.perhaps_ours)
    if isinstance(error, LaunchError):
        # There is no pod of this callback, or it was deleted again before it could begin.
        return ApiFailure(ApiAnswer.PERMANENT, None, str(error))
    failure = classify(error)
    too_large = failure.status == 403 and never_fits(failure.message)
    if failure.retryable and not too_large:
        return failure
    if failure.status is None:
        return dataclasses.replace(
            failure,
            message=f"Could not start: an unexpected error, which is likely a mistake in a program: {failure.message}. "
            "The scheduler's log has the traceback.",
        )
    if failure.answer is ApiAnswer.ALREADY_EXISTS:
        # The pod that had the name is on its way out: its name comes free.
        return dataclasses.replace(failure, answer=ApiAnswer.TRANSIENT)
    refused = f"Could not start: the API server refused the pod ({failure.message})."
    advice = _TOO_LARGE_FOR_QUOTA if too_large else remedy(failure)
    return dataclasses.replace(failure, answer=ApiAnswer.PERMANENT, message=f"{refused} {advice}".rstrip())
