"""The demo: a Dag run misses two deadlines, and what becomes of their callbacks is shown as it happens."""
