"""A Kubernetes cluster on this machine, without containers and without root.

See README.md for what it is and what it is not.
"""

from kubernetes_tests.cluster.launcher import Capacity, ClusterError, Image, LocalCluster

__all__ = ["Capacity", "ClusterError", "Image", "LocalCluster"]
