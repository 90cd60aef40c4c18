"""Decides on one machine: what to pull, which models to hold, what goes to which runtime and when.

`agent` is the loop; `scheduler` decides, by `batching`, `cost` and `residency`; `effects` is what it may ask
to be done; `tickets` are the jobs it holds; `workers` are its runtime processes.
"""
