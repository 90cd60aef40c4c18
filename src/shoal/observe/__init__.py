"""Logs and metrics: what an operator sees. Knows nothing of the road; every room may call it."""
