"""The words every room shares: errors, facts about a model, envelopes, items, chunks, frames.

No I/O and nothing of ours imported: pure data with pure encode/decode functions.
"""
