"""The benchmark: ratios of this executor to the stock one and to the bare API server, in one run.

python -m kubernetes_tests.bench --size small
"""
