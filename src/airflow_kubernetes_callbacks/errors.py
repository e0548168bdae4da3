"""Errors that this package raises. Each message says what is wrong, where, and what to do."""

from __future__ import annotations


class CallbackPodsError(Exception):
    """Base of every error of this package."""


class SettingsError(CallbackPodsError):
    """A value in ``[kubernetes_callbacks]`` cannot be used; the message names the option and the remedy."""


class ExecutorConflictError(CallbackPodsError):
    """A stock KubernetesExecutor is configured beside this one: both would claim the same pods."""


class LaunchError(CallbackPodsError):
    """This callback cannot be launched, now or later; the text ends up in ``callback.output``."""


class LaunchDelayedError(CallbackPodsError):
    """This launch was not made, nothing was sent, and the cause passes: it is tried again, not without end."""


class SecretRefusedError(LaunchError):
    """The Secret with the workload was refused for good, and the pod that waited for it was deleted."""


class SecretTakenError(CallbackPodsError):
    """The Secret's name is still that of another pod's Secret: the request is made again when it is gone."""


class UndoneError(CallbackPodsError):
    """A request was accepted, and what it asked for was not done: asking again changes nothing."""


class NameTakenError(CallbackPodsError):
    """The name of this launch's pod belongs to another pod, which stays: the next launch takes another name.

    :param perhaps_ours: it carries no callback's id, so that it may be ours, stripped of all that it is known by.
    """

    def __init__(self, message: str, *, perhaps_ours: bool) -> None:
        super().__init__(message)
        self.perhaps_ours = perhaps_ours


class PayloadTooLargeError(LaunchError):
    """The workload is larger than the chosen delivery can carry; the message has the sizes in bytes."""
