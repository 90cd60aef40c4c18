"""The front door: notes what a request is, puts it in the queue unopened, relays the answer.

`app` is the ASGI application, `routing` says what a path means, `admission` decides, `waiting` holds the
connection while the work is done, `pages` answers what needs no model, `server` listens.
"""
