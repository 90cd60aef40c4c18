"""Windows to runtimes, and what comes back of them: sent by `batching`'s word, settled, mourned.

Part of the scheduler: it changes replicas and tickets, reads no clock, and decides nothing about models.
"""

import itertools
import math

from shoal.node import batching
from shoal.node.effects import Effects
from shoal.node.replica import Flight, Replica
from shoal.node.tickets import Ticket
from shoal.protocol.errors import DeadlineExceeded, RuntimeCrashed
from shoal.protocol.frames import Answer
from shoal.protocol.items import Item, Output


class Feeding:
    def __init__(self, effects: Effects, tickets: dict[str, Ticket]) -> None:
        self._do = effects
        self._tickets = tickets
        self._keys = itertools.count(1)

    def feed(self, replica: Replica, now: float) -> None:
        """Send the next window, if there is to be one now."""
        if replica.suspects:
            if not replica.flying:
                self._send_suspect(replica, now)
            return
        if any(flight.suspected for flight in replica.flying.values()):
            return
        decision = batching.next_window(replica.load(), now)
        if decision.wait_until is not None:
            self._do.wake_at(decision.wait_until)
        elif decision.batches:
            self._send(replica, decision.batches, now)

    def answered(self, replica: Replica, answer: Answer, now: float) -> None:
        """Outputs came back. Keys not in flight (cancelled, or of a runtime that died) are ignored."""
        replica.backlog = answer.backlog
        while replica.sent_after and replica.sent_after[0][0] <= answer.seen:
            replica.sent_after.popleft()
        replica.backlog += sum(batches for _, batches in replica.sent_after)
        finished = 0
        for key, output in zip(answer.keys, answer.outputs, strict=True):
            flight = replica.flying.pop(key, None)
            if flight is not None:
                finished += self._settle(replica, flight, output, answer)
        if answer.measured is not None:
            measured = answer.measured
            if measured.items > 1 or not replica.profile.lone:  # alone, it has more than its share of the device
                replica.learner.learn(measured.tokens, measured.square, measured.seconds)
        replica.last_used = replica.last_heard = now
        if finished > 1:
            replica.linger_until = now + batching.LINGER_S

    def orphaned(self, replica: Replica, flying: list[Flight]) -> None:
        """The runtime died with these in flight.

        1. An item that was the only one there at two deaths is to blame: it fails, typed. One death proves
           nothing, the process may have been killed from outside.
        2. Whatever else was in flight is suspected, and runs again, each alone, before anything else.
        """
        for flight in reversed(flying):
            strikes = flight.strikes + (len(flying) == 1)
            if strikes == 2:  # 1
                crashed = RuntimeCrashed("computing this item killed the runtime twice")
                if flight.ticket.settle(flight.index, Output(fault=crashed.fault())):
                    del self._tickets[flight.ticket.id]
                    self._do.finish(flight.ticket)
            else:  # 2
                suspect = Flight(flight.ticket, flight.index, suspected=True, strikes=strikes)
                replica.suspects.appendleft(suspect)

    def forget(self, replica: Replica, ticket: Ticket) -> None:
        """Nobody waits for it: what is not yet sent never is, what is in flight is called back."""
        replica.waiting.remove(ticket)
        keys = [key for key, flight in replica.flying.items() if flight.ticket is ticket]
        for key in keys:
            del replica.flying[key]
        if keys:
            self._do.cancel(replica.worker, keys)

    def _send_suspect(self, replica: Replica, now: float) -> None:
        while replica.suspects and not replica.flying:
            suspect = replica.suspects.popleft()
            if self._tickets.get(suspect.ticket.id) is suspect.ticket:
                self._transmit(replica, [suspect], now)
        if not replica.flying:
            self.feed(replica, now)

    def _send(self, replica: Replica, batches: float, now: float) -> None:
        profile = replica.profile
        window, late = replica.waiting.fill(
            math.ceil(batches * profile.batch_items),
            batches * profile.batch_tokens,
            replica.known.tokens_per_byte,
            now,
        )
        for ticket in late:
            self._give_up(replica, ticket)
        if window:
            flights = [Flight(ticket, index) for ticket, index in window]
            self._transmit(replica, flights, now)

    def _transmit(self, replica: Replica, window: list[Flight], now: float) -> None:
        keys = [next(self._keys) for _ in window]
        items: list[Item] = [flight.ticket.items[flight.index] for flight in window]
        if not replica.flying:
            replica.backlog = 0.0
            replica.sent_after.clear()
            replica.last_heard = now
        # Each idle stream takes a share, however thin.
        batches = max(replica.batches_in(items), min(len(items), replica.profile.streams - replica.backlog))
        replica.flying.update(zip(keys, window, strict=True))
        replica.windows += 1
        replica.sent_after.append((replica.windows, batches))
        replica.backlog += batches
        replica.sent_at = now
        self._do.send(replica.worker, keys, items)

    def _settle(self, replica: Replica, flight: Flight, output: Output, answer: Answer) -> bool:
        ticket = flight.ticket
        if output.tokens and not output.truncated:
            ratio = output.tokens / max(8, ticket.items[flight.index].size_bytes)
            replica.known.tokens_per_byte += 0.02 * (min(ratio, 1.0) - replica.known.tokens_per_byte)
        if answer.measured is not None:
            ticket.compute_s = max(ticket.compute_s, answer.measured.seconds)
            ticket.tokenize_s = max(ticket.tokenize_s, answer.measured.tokenize_seconds)
        if not ticket.settle(flight.index, output):
            return False
        del self._tickets[ticket.id]
        self._do.finish(ticket)
        return True

    def _give_up(self, replica: Replica, ticket: Ticket) -> None:
        """Its deadline passed before all of it was sent."""
        self._tickets.pop(ticket.id, None)
        for key in [key for key, flight in replica.flying.items() if flight.ticket is ticket]:
            del replica.flying[key]
        self._do.refuse(ticket, DeadlineExceeded("the deadline passed before the work was done"))
