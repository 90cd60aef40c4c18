"""What a node does in regard of the others that take from the same lines: when it asks the queue, what it gives
back, which parts of a request it gives away, which cold line it takes.

Part of the scheduler: the decisions themselves are `pulling`'s, `shares`' and `placement`'s. Alone on a machine
nothing of it happens, but that lines are pulled from early.
"""

from shoal.node import placement, pulling, shares
from shoal.node.effects import Effects
from shoal.node.feeding import Feeding
from shoal.node.line import Line
from shoal.node.loading import Loading
from shoal.node.peers import Peers
from shoal.node.settings import Settings
from shoal.node.tickets import Ticket
from shoal.queue import Depth

CLAIM_S = 10.0
"""How long a claimed line is left to its claimer, besides twice what the load is known to take."""
EVICT_AFTER_S = 0.02
REFUSE_AFTER_S = 2.0
ASK_EVERY = 0.05
AT_WORK = 0.1
"""Shares of the latency target: how often a node that is late looks whether another could do what waits here, and
how lately such a one has pulled. At a high rate of small jobs no pull is ever parked, however little there is to
do.
"""
EARLIER = 0.04
"""Share of the latency target by which a pull goes earlier than predicted: a window that ends before its time is
no reason to stand idle for a round trip."""
MOST_ROUND_TRIP_S = 0.05
LEAST_SHARED_ITEMS = 16


class Neighbours:
    def __init__(
        self,
        settings: Settings,
        effects: Effects,
        peers: Peers,
        feeding: Feeding,
        loading: Loading,
        tickets: dict[str, Ticket],
    ) -> None:
        self._do, self._peers, self._tickets = effects, peers, tickets
        self._feeding, self._loading = feeding, loading
        self._target_s = settings.latency_s
        self.round_trip_s = 0.0
        """To the queue and back, as lately measured."""

    def asked(self, seconds: float) -> None:
        """The queue answered a question after so long."""
        measured = min(MOST_ROUND_TRIP_S, seconds)
        self.round_trip_s += (measured - self.round_trip_s) * (0.2 if self.round_trip_s else 1.0)

    def took(self, line: Line, seconds: float, open_s: float) -> None:
        """A pull brought jobs after so long, and they were opened in `open_s`. One that had to wait for the first
        of them says nothing of the way."""
        if seconds <= max(0.002, 4 * self.round_trip_s):
            self.asked(seconds)
        line.open_s += 0.1 * (min(MOST_ROUND_TRIP_S, open_s) - line.open_s)

    def pull(self, line: Line, now: float) -> None:
        """Ask the queue for jobs of this line, or see to it that we will."""
        if line.pulling or not self.may_pull(line, now):
            return
        cost = line.learner.cost
        if self._peers.holders(line.model.name, now):
            lead_s = self.round_trip_s + line.open_s + line.tokenize_s + EARLIER * self._target_s
            job_tokens = 1.0 if line.profile.pads else line.job_tokens  # those that come are alike, short or long
            pull = pulling.among_others(
                line.hand(now), cost, line.padding, job_tokens, self._target_s, lead_s, now
            )
            size_bytes = pull.tokens / line.tokens_per_body_byte
        else:
            pull = pulling.alone(line.hand(now), cost)
            size_bytes = pull.tokens / line.known.tokens_per_byte + 4096
        if pull.jobs:
            line.pulling = True
            self._do.pull(line.model.name, pull.jobs, int(size_bytes))
        elif pull.wait_until is not None:
            self._do.wake_at(pull.wait_until)

    def may_pull(self, line: Line, now: float) -> bool:
        """A line whose model is not here is left to others, unless there are none or we said that we take it."""
        if line.removed_at:
            return False
        if line.replicas or line.pinned or now < line.claim_until:
            return True
        return self._peers.are_known and not self._peers.count(now)

    # A line whose model is not here.

    def consider(self, line: Line, depth: Depth | None, now: float) -> None:
        """Jobs wait in it: claim its load, if it is nobody's or would be worth it.

        1. It is ours, claimed, or what waits is not worth a load beside those that hold it: no.
        2. There is room for it: yes.
        3. Others would have to go, or there is no room: only if no other node has claimed it in a moment. Who can
           never hold it claims it late, to refuse it, so that nobody waits in vain.
        """
        if self.may_pull(line, now) or line.has_failed(now) or not self._is_worth_a_load(line, depth, now):
            line.take_at = 0.0  # 1
            return
        plan = self._loading.room_for(line, now)
        if plan.verdict != "load" or plan.evict:  # 3
            patience = EVICT_AFTER_S if plan.evict else REFUSE_AFTER_S
            line.take_at = line.take_at or now + patience
            if now < line.take_at:
                self._do.wake_at(line.take_at)
                return
        line.take_at = 0.0
        self._do.claim(line.model.name, now + _claim_s(line))  # 2, 3

    def _is_worth_a_load(self, line: Line, depth: Depth | None, now: float) -> bool:
        """1. Another node has claimed it, its model is gone from here, or we have not yet heard who holds it: no.
        2. Nobody holds it: yes. 3. The wait of what waits, by those that hold it, is long, and there are not loads
        enough."""
        name = line.model.name
        if self._peers.is_claimed(name, now) or line.removed_at or not self._peers.are_known:
            return False  # 1
        holders = self._peers.holders(name, now)
        if not holders:
            return True  # 2
        if depth is None or not placement.may_load(self._peers.loading(now), self._peers.count(now) + 1):
            return False
        tokens = depth.size_bytes * line.tokens_per_body_byte
        streams = holders * line.profile.streams
        wait = placement.predicted_wait(tokens, line.learner.cost, line.profile.batch_tokens, streams)
        return placement.is_worth_a_load(wait, now - depth.oldest, line.known.load_s, self._target_s)  # 3

    def belongs_elsewhere(self, line: Line, now: float) -> bool:
        """Its model went from here, and others have it."""
        return not self.may_pull(line, now) and self._peers.holders(line.model.name, now) > 0

    def claimed(self, line: Line, now: float) -> None:
        """The others know that it is ours to load."""
        line.claim_until = now + _claim_s(line)

    def settle_claim(self, line: Line) -> None:
        """It is loaded, or will not be."""
        if line.claim_until:
            line.claim_until = 0.0
            self._do.release(line.model.name)

    # What others could do sooner.

    def take_apart(self, line: Line, ticket: Ticket, waiting: int, now: float) -> None:
        """Give parts of a large request away. `waiting` nodes have nothing to do. A part is never taken apart."""
        if ticket.envelope.task == "part" or len(ticket.unsent) < LEAST_SHARED_ITEMS:
            return
        unsent = list(ticket.unsent)
        tokens = [line.padding * line.tokens_in(1, ticket.items[index].size_bytes) for index in unsent]
        profile = line.profile
        others = self._peers.holders(line.model.name, now)
        parts = shares.parts_of(
            tokens, line.learner.cost, profile.batch_tokens, line.streams, min(waiting, others), others
        )
        for part in parts:
            ticket.give_away([unsent[place] for place in part])
            self._do.share(ticket, [unsent[place] for place in part])

    def watch(self, line: Line, now: float) -> None:
        """Where a window is late and others were sent ahead of it, find out whether another node waits."""
        if not self._peers.holders(line.model.name, now):
            return
        for replica in line.ready:
            if not replica.open or not (len(replica.open) > 1 or line.waiting):
                continue
            every_s = ASK_EVERY * self._target_s
            when = max(replica.late_at, line.asked_at + every_s)
            if now >= when:
                line.asked_at, when = now, now + every_s
                self._do.ask_waiting(line.model.name, AT_WORK * self._target_s)
            self._do.wake_at(when)

    def others_wait(self, line: Line, now: float) -> None:
        """Another node has nothing to do, or goes on taking jobs: what a late window holds up goes back to it."""
        late = [replica for replica in line.ready if replica.is_late(now)]
        if not late:
            return
        tickets = [ticket for replica in late for ticket in replica.untouched()]
        if len(late) == len(line.ready):
            tickets += line.waiting.tickets
        for ticket in {ticket.id: ticket for ticket in tickets}.values():
            if not ticket.is_begun(sum(replica.ahead(ticket) for replica in late)):
                del self._tickets[ticket.id]
                self._feeding.forget(line, ticket, now)
                self._do.give_back(ticket)


def _claim_s(line: Line) -> float:
    return CLAIM_S + 2 * line.known.load_s
