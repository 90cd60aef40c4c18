"""Models on servers by hand, as somebody would who knows how much each is asked for. Pure."""

from collections.abc import Sequence


def placed(shares: Sequence[float], servers: int, room: int) -> list[list[int]]:
    """For each model the servers that hold it, at most `room` models on one.

    1. Each model gets one server. 2. Each place that is left goes to the model with the largest share a server.
    3. The largest first, on the servers that are asked for least so far and have room.

    Raises ValueError where there is not even one place for each.
    """
    if servers * room < len(shares):
        raise ValueError(f"{len(shares)} models have no room on {servers} servers of {room}")
    counts = [1] * len(shares)
    for _ in range(servers * room - len(shares)):
        growing = [model for model, count in enumerate(counts) if count < servers]
        if not growing:
            break
        counts[max(growing, key=lambda model: shares[model] / counts[model])] += 1
    load, free = [0.0] * servers, [room] * servers
    places: list[list[int]] = [[] for _ in shares]
    for model in sorted(range(len(shares)), key=lambda model: -counts[model]):
        open_to = sorted((at for at in range(servers) if free[at]), key=lambda at: (load[at], -free[at]))
        places[model] = sorted(open_to[: counts[model]])
        for at in places[model]:
            free[at] -= 1
            load[at] += shares[model] / len(places[model])
    return places
