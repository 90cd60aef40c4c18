"""Windows to runtimes, and what comes back of them: sent by `batching`'s word, settled, mourned.

Part of the scheduler: it changes replicas and tickets, reads no clock, and decides nothing about models.
"""

import itertools
import math
from collections.abc import Sequence

import msgspec

from shoal.node import batching
from shoal.node.effects import Effects
from shoal.node.line import Line
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

    def feed(self, line: Line, now: float) -> None:
        """Send the next windows, if there are to be any now; whoever is free first is served first.

        Idle ones leave one another their share of what waits, and so do, after them, those that are busy.
        """
        for replica in sorted(line.ready, key=lambda replica: (_fullness(replica), replica.busy_with.due_at)):
            if self._may_suspect(line, replica):
                if not replica.flying:
                    self._send_suspect(line, replica, now)
                continue
            if replica.has_suspect:
                continue
            decision = batching.next_window(line.load(replica), now)
            if decision.wait_until is not None:
                self._do.wake_at(decision.wait_until)
            elif decision.batches:
                self._send(replica, decision.batches, _takers(replica), now)

    def answered(self, replica: Replica, answer: Answer, now: float) -> None:
        """Outputs came back. Keys not in flight (cancelled, or of a runtime that died) are ignored."""
        replica.backlog = answer.backlog
        while replica.sent_after and replica.sent_after[0][0] <= answer.seen:
            replica.sent_after.popleft()
        replica.backlog += sum(batches for _, batches in replica.sent_after)
        finished = 0
        landed: list[Flight] = []
        for key, output in zip(answer.keys, answer.outputs, strict=True):
            flight = replica.flying.pop(key, None)
            if flight is not None:
                landed.append(flight)
                finished += self._settle(replica, flight, output, answer)
        replica.settled(landed, now)
        if answer.measured is not None:
            measured = answer.measured
            if measured.items > 1 or not replica.profile.lone:  # alone, it has more than its share of the device
                replica.line.learner.learn(measured.tokens, measured.square, measured.seconds)
            _learn_padding(replica.line, measured.tokens, answer.outputs)
            tokenize_s = min(0.05, measured.tokenize_seconds)
            replica.line.tokenize_s += 0.1 * (tokenize_s - replica.line.tokenize_s)
        replica.last_used = replica.last_heard = replica.line.last_used = now
        if finished > 1:
            replica.line.linger_until = now + batching.LINGER_S

    def orphaned(self, line: Line, flying: list[Flight]) -> None:
        """A runtime died with these in flight.

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
                line.suspects.appendleft(suspect)

    def forget(self, line: Line, ticket: Ticket, now: float) -> None:
        """It is ours no longer: what is not yet sent never is, what is in flight is called back."""
        for replica, keys in line.forget(ticket, now):
            self._do.cancel(replica.worker, keys)

    def _may_suspect(self, line: Line, replica: Replica) -> bool:
        """Whether one can be tried here. Those that wait for an adapter hold nobody up."""
        gone = [suspect for suspect in line.suspects if self._tickets.get(suspect.ticket.id) is not suspect.ticket]
        for suspect in gone:
            line.suspects.remove(suspect)
        return any(replica.shelf.can(suspect.ticket.needs) for suspect in line.suspects)

    def _send_suspect(self, line: Line, replica: Replica, now: float) -> None:
        suspect = next(each for each in line.suspects if replica.shelf.can(each.ticket.needs))
        line.suspects.remove(suspect)
        self._transmit(replica, [msgspec.structs.replace(suspect, window=replica.windows + 1)], now)

    def _send(self, replica: Replica, batches: float, takers: int, now: float) -> None:
        line, profile, can = replica.line, replica.profile, replica.shelf.can
        items, tokens = math.ceil(batches * profile.batch_items), batches * profile.batch_tokens
        if takers > 1:
            able = line.waiting.count(can)
            most = batching.share(able.items, line.tokens_of(able), takers)
            items, tokens = min(items, most[0]), min(tokens, most[1])
        window, late = line.waiting.fill(items, tokens, line.known.tokens_per_byte, now, can)
        for ticket in late:
            self._give_up(line, ticket, now)
        if window:
            flights = [Flight(ticket, index, window=replica.windows + 1) for ticket, index in window]
            self._transmit(replica, flights, now)

    def _transmit(self, replica: Replica, window: list[Flight], now: float) -> None:
        line = replica.line
        keys = [next(self._keys) for _ in window]
        items: list[Item] = [flight.ticket.items[flight.index] for flight in window]
        if not replica.flying:
            replica.backlog = 0.0
            replica.sent_after.clear()
            replica.last_heard = now
        # Each idle stream takes a share, however thin.
        batches = max(line.batches_in(items), min(len(items), replica.profile.streams - replica.backlog))
        replica.flying.update(zip(keys, window, strict=True))
        replica.windows += 1
        replica.sent_after.append((replica.windows, batches))
        replica.backlog += batches
        replica.sent_at = now
        replica.shelf.used({item.adapter for item in items}, now)
        lengths = [line.tokens_in(1, item.size_bytes) for item in items]
        replica.opened(replica.windows, len(items), line.seconds(replica.profile, lengths), now)
        self._do.send(replica.worker, keys, items)

    def _settle(self, replica: Replica, flight: Flight, output: Output, answer: Answer) -> bool:
        ticket = flight.ticket
        if output.tokens and not output.truncated:
            replica.line.learn_item(output.tokens, ticket.items[flight.index].size_bytes)
        if answer.measured is not None:
            ticket.compute_s = max(ticket.compute_s, answer.measured.seconds)
            ticket.tokenize_s = max(ticket.tokenize_s, answer.measured.tokenize_seconds)
        if not ticket.settle(flight.index, output):
            return False
        self.finish(replica.line, ticket)
        return True

    def finish(self, line: Line, ticket: Ticket) -> None:
        """Every item has its output."""
        del self._tickets[ticket.id]
        tokens = sum(output.tokens for output in ticket.outputs if output is not None)
        line.learn_job(tokens, len(ticket.delivery.job.body))
        self._do.finish(ticket)

    def _give_up(self, line: Line, ticket: Ticket, now: float) -> None:
        """Its deadline passed before all of it was sent."""
        self._tickets.pop(ticket.id, None)
        line.forget(ticket, now)
        self._do.refuse(ticket, DeadlineExceeded("the deadline passed before the work was done"))


def _learn_padding(line: Line, computed: int, outputs: Sequence[Output]) -> None:
    useful = sum(output.tokens for output in outputs)
    if useful:
        line.padding += 0.05 * (max(1.0, computed / useful) - line.padding)


def _fullness(replica: Replica) -> float:
    """Micro-batches' worth a stream."""
    return replica.at_work / replica.profile.streams


def _takers(replica: Replica) -> int:
    """How many replicas are about as free as this one, and can compute as much of what waits; itself included."""
    most, line = 1.0 if _fullness(replica) < 1 else 2.0, replica.line
    able = [digest for digest in line.waiting.by_adapter if replica.shelf.can(digest)]
    return sum(
        _fullness(other) < most and not other.has_suspect and all(map(other.shelf.can, able))
        for other in line.ready
    )
