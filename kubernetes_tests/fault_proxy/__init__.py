"""A proxy between the executor and the API server, and what goes wrong in it on request."""

from kubernetes_tests.fault_proxy.proxy import Exchange, Fault, FaultProxy, Match, Reply, Rule

__all__ = ["Exchange", "Fault", "FaultProxy", "Match", "Reply", "Rule"]
