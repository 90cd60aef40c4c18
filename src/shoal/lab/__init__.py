"""Measure and improve: load, evaluate, tune. Nothing stands here yet but what bench/ and the tests use."""
