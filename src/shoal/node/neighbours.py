"""What a node does in regard of the others that take from the same lines: when it asks the queue, what it gives
back, which parts of a request it gives away, which cold line it takes.

Part of the scheduler: the decisions themselves are `pulling`'s, `shares`' and `placement`'s. Alone on a machine
nothing of it happens, but that lines are pulled from early.
"""

from collections import deque

from shoal.node import placement, pulling, shares
from shoal.node.effects import Effects
from shoal.node.feeding import Feeding
from shoal.node.line import Line
from shoal.node.loading import Loading
from shoal.node.occupancy import Occupancy
from shoal.node.peers import Peers
from shoal.node.settings import Settings
from shoal.node.tickets import Ticket
from shoal.queue import Bounds, Depth

CLAIM_S = 10.0
"""How long a claimed line is left to its claimer, besides twice what the load is known to take."""
EVICT_AFTER_S = 0.02
HEARD_WITHIN_S = 0.5
"""What became of a claim, and the load that follows."""
SPREAD_S = 0.002
"""A node waits so much longer before it claims a load for each replica that it has."""
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
        self._target_s, self._devices = settings.latency_s, len(settings.devices)
        self._claimed: deque[float] = deque()
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
        shared = [replica.busy_with for replica in line.ready if self._is_shared(replica.busy_with, now)]
        if shared:
            for busy_with in shared:
                if busy_with.wanted and line.model.name not in busy_with.wanted:
                    self._do.pull_anew(busy_with.device)
                self.pull_for(busy_with, now)
            return
        cost = line.learner.cost
        if self._peers.holders(line.model.name, now):
            pull = self._just_in_time(line, line.hand(now), self._lead_s(line), now)
            size_bytes = pull.tokens / line.tokens_per_body_byte
        else:
            pull = pulling.alone(line.hand(now), cost)
            size_bytes = pull.tokens / line.known.tokens_per_byte + 4096
        if pull.jobs:
            line.pulling = True
            self._do.pull(line.model.name, pull.jobs, int(size_bytes))
        elif pull.wait_until is not None:
            self._do.wake_at(pull.wait_until)

    def pull_for(self, busy_with: Occupancy, now: float) -> None:
        """Ask the queue for jobs of one of the lines that share a device, whichever has waited longest, once the
        device is nearly free; or see to it that we will."""
        if busy_with.wanted or not self._is_shared(busy_with, now):
            return
        lead_s = self.round_trip_s + max(self._lead_s(replica.line) for replica in busy_with.replicas)
        if busy_with.due_at > now + lead_s:
            self._do.wake_at(busy_with.due_at - lead_s)
            return
        able = [r for r in busy_with.replicas if r.status == "ready" and self._may_share(r.line, now)]
        wanted: dict[str, Bounds] = {}
        for replica in able:
            line = replica.line
            pull = self._just_in_time(line, line.hand(now, replica), lead_s, now)
            if not pull.jobs:
                return  # it has enough to do, or nobody knows how long it takes
            wanted[line.model.name] = Bounds(pull.jobs, int(pull.tokens / line.tokens_per_body_byte))
        if wanted:
            busy_with.wanted = frozenset(wanted)
            self._do.pull_any(busy_with.device, wanted)

    def _is_shared(self, busy_with: Occupancy, now: float) -> bool:
        """Where other nodes take from the same lines, those of one device are pulled from together."""
        return len(busy_with.replicas) > 1 and self._peers.count(now) > 0

    def _may_share(self, line: Line, now: float) -> bool:
        return not (line.pulling or line.is_private) and self.may_pull(line, now)

    def _just_in_time(self, line: Line, hand: pulling.Hand, lead_s: float, now: float) -> pulling.Pull:
        job_tokens = 1.0 if line.profile.pads else line.job_tokens  # those that come are alike, short or long
        return pulling.among_others(hand, line.learner.cost, line.padding, job_tokens, self._target_s, lead_s, now)

    def _lead_s(self, line: Line) -> float:
        return self.round_trip_s + line.open_s + line.tokenize_s + EARLIER * self._target_s

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
        2. Others hold it, so that nobody waits for us alone: yes, if there is room or can be.
        3. Nobody does: yes, the sooner the less we hold, so that models spread over the nodes. If others would
           have to go, only if no other node has claimed it in a moment. Who can never hold it claims it late, to
           refuse it, so that nobody waits in vain.
        """
        if self.may_pull(line, now) or line.has_failed(now) or not self._is_worth_a_load(line, depth, now):
            line.take_at = 0.0  # 1
            return
        plan = self._loading.room_for(line, now)
        if self._peers.holders(line.model.name, now):  # 2
            if plan.verdict == "load":
                self._claim(line, now)
            return
        if plan.verdict != "load":  # 3
            patience = REFUSE_AFTER_S
        else:
            patience = EVICT_AFTER_S if plan.evict else SPREAD_S * (self._loading.held + self._claims(now))
        line.take_at = line.take_at or now + patience
        if now < line.take_at:
            self._do.wake_at(line.take_at)
            return
        line.take_at = 0.0
        self._claim(line, now)

    def _claim(self, line: Line, now: float) -> None:
        self._claimed.append(now)
        self._do.claim(line.model.name, now + _claim_s(line))

    def _claims(self, now: float) -> int:
        """Of which nothing has been heard yet, perhaps."""
        while self._claimed and now - self._claimed[0] > HEARD_WITHIN_S:
            self._claimed.popleft()
        return len(self._claimed)

    def _is_worth_a_load(self, line: Line, depth: Depth | None, now: float) -> bool:
        """1. Another node has claimed it, its model is gone from here, or we have not yet heard who holds it: no.
        2. Nobody holds it: yes. 3. Something is being loaded here: one at a time. 4. Its jobs wait for those that
        hold it, who are busier than we: yes. 5. What waits is much for those that hold it, and others do not load.
        """
        name = line.model.name
        if self._peers.is_claimed(name, now) or line.removed_at or not self._peers.are_known:
            return False  # 1
        holders = self._peers.holders(name, now)
        if not holders:
            return True  # 2
        if depth is None or self._loading.under_way() or self._claims(now):
            return False  # 3
        waited, theirs = self._peers.waited_s(name, now), self._peers.least_busy_holder(name, now)
        if placement.would_relieve(waited, theirs, self._peers.own_busy, self._target_s):
            return True  # 4
        if not placement.may_load(self._peers.loading(now), self._peers.devices(now) + self._devices):
            return False
        tokens = depth.size_bytes * line.tokens_per_body_byte
        streams = holders * line.profile.streams
        wait = placement.predicted_wait(tokens, line.learner.cost, line.profile.batch_tokens, streams)
        return placement.is_worth_a_load(wait, now - depth.oldest, line.known.load_s, self._target_s)  # 5

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
