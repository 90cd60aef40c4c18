"""Measure and improve. What stands so far is the bench: a load on any server, and what came of it.

    mixes · tokens · wires     what is asked, what it is worth, in which API's words
    load · run                 closed, open_loop (over alarm, connection, reading, record), and what comes back
    ramp · knee                which loads are tried, and where more is not worth while (pure)
    processes                  what watched processes take
    bench · report · compare   one bench from beginning to end, its file, two of them side by side
    plot                       a report as a picture

The first way in is `load.closed`; `bench.run` does everything that `shoal bench` does, but print.
"""
