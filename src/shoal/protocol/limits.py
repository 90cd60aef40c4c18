"""What bounds a body's structure before it is turned into anything larger. Fixed: no setting widens these."""

MAX_ENTRIES = 100_000
"""Entries in one request's list, whatever `--max-items` says."""
MAX_OPENINGS = 500_000
"""Objects and lists that a JSON body may open, texts that hold brackets included: each costs a hundred times
its byte once decoded."""
