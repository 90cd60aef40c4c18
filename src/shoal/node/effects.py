"""What the scheduler may ask to be done. The agent does it; tests record it."""

from collections.abc import Mapping
from typing import Protocol

from shoal.catalog import Model
from shoal.node.tickets import Ticket
from shoal.protocol.errors import ShoalError
from shoal.protocol.facts import Profile
from shoal.protocol.items import Item
from shoal.queue import Bounds


class Effects(Protocol):
    """None of these waits: what comes of them returns to the scheduler as an event."""

    def pull(self, line: str, max_jobs: int, max_bytes: int) -> None:
        """Ask the queue for work; `pulled` follows, once."""

    def pull_any(self, device: str, wanted: Mapping[str, Bounds]) -> None:
        """Ask the queue for work of one of these lines, for a device that they share; `pulled_any` follows."""

    def pull_anew(self, device: str) -> None:
        """What is wanted for it is no longer the same: such a pull ends as soon as it can."""

    def launch(self, model: str, profile: Profile) -> int:
        """Start a process that loads `model` with these settings; its number. `loaded`, `load_failed` or `died`
        follows.
        """
        ...

    def retire(self, worker: int) -> None:
        """End a process that has nothing in flight; `stopped` follows once its memory is back."""

    def kill(self, worker: int) -> None:
        """End a process that no longer answers; `died` follows."""

    def send(self, worker: int, keys: list[int], items: list[Item]) -> None:
        """Hand over one window."""

    def take_adapter(self, worker: int, adapter: Model) -> None:
        """Have a runtime hold this one too; `told_adapter` and `took_adapter`, or `adapter_failed` follow."""

    def drop_adapter(self, worker: int, digest: str) -> None:
        """Nothing that it is to compute needs this one any more."""

    def cancel(self, worker: int, keys: list[int]) -> None:
        """Tell a runtime that nobody waits for these items."""

    def finish(self, ticket: Ticket) -> None:
        """Every output is there: join, encode, reply, acknowledge."""

    def refuse(self, ticket: Ticket, error: ShoalError) -> None:
        """The whole job fails: reply with the error, acknowledge."""

    def give_back(self, ticket: Ticket) -> None:
        """Untouched: it returns to the queue, for another node."""

    def share(self, ticket: Ticket, indices: list[int]) -> None:
        """Ask other nodes for these items of it; `part_answered` or `part_lost` follows."""

    def ask_waiting(self, line: str, within_s: float) -> None:
        """Find out whether another node waits for jobs of it, or took some within so many seconds; `others_wait`
        follows if one does."""

    def claim(self, line: str, until: float) -> None:
        """Tell the other nodes that this one loads it; `claimed` follows if none did so before."""

    def release(self, line: str) -> None:
        """The claim is over."""

    def drop(self, ticket: Ticket) -> None:
        """Nobody waits for the answer: acknowledge only."""

    def wake_at(self, when: float) -> None:
        """Call `tick` at that clock reading."""
