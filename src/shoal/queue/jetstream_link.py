"""One lasting connection to a queue server: it comes back by itself, with its subscriptions.

Knows NATS subjects and requests, not what they mean. Who uses it hears `on_up` after each (re)connection and
`on_down` when one is lost; small messages published in between are kept and sent, up to a bound.
"""

import asyncio
import contextlib
import itertools
import logging
import random
import secrets
import ssl
from collections import deque
from collections.abc import Awaitable, Callable

from shoal.observe import log as logs
from shoal.protocol.errors import InvalidInput, QueueUnavailable, ShoalError
from shoal.queue.jetstream_auth import Address, Login, addresses, connect_line
from shoal.queue.jetstream_wire import OnMessage, Wire

log = logging.getLogger("shoal.queue")
HANDSHAKE_S = 2.0
PING_EVERY_S = 1.0
MOST_UNANSWERED_PINGS = 3
MOST_KEPT_BYTES = 8 * 1024 * 1024
REFUSED_PAUSE_S = 2.0
"""Before we ask again a server that took us and would not keep what we need."""
_FIRST_RETRY_S, _LAST_RETRY_S = 0.05, 0.5


class Link:
    def __init__(self, url: str, login: Login | None = None, name: str = "shoal") -> None:
        self._addresses = addresses(url)
        self._login = login or Login()
        self._name = name
        self._wire: Wire | None = None
        self._numbers = itertools.count(1)
        self._subscriptions: dict[int, tuple[str, str, OnMessage]] = {}
        self._kept: deque[bytes] = deque()
        self._kept_bytes = 0
        self._requests: dict[bytes, asyncio.Future[tuple[bytes, bytes]]] = {}
        self._reply_to = f"reply.{secrets.token_hex(8)}"
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._turned_away = ""
        self.on_up: Callable[[], Awaitable[None]] | None = None
        self.on_down: Callable[[str], None] | None = None
        self.max_payload = 1024 * 1024
        self.subscribe(f"{self._reply_to}.*", self._replied)

    async def open(self, within_s: float) -> None:
        """Raises QueueUnavailable when no server answers `within_s`, or one that has no room for us; InvalidInput
        when one refuses us."""
        try:
            async with asyncio.timeout(within_s):
                await self._connect(patient=False)
        except TimeoutError:
            servers = ", ".join(map(str, self._addresses))
            why = self._turned_away or f"no queue server answers at {servers}; --nats changes it"
            raise QueueUnavailable(why) from None
        await self._up()
        self._task = asyncio.get_running_loop().create_task(self._stay())

    @property
    def is_up(self) -> bool:
        return self._wire is not None

    def unsent_bytes(self) -> int:
        """What waits to be written to the server."""
        return self._kept_bytes + (self._wire.unsent_bytes() if self._wire is not None else 0)

    def subscribe(self, subject: str, on_message: OnMessage, group: str = "") -> int:
        """`on_message` is called for each message, on the loop, and must neither wait nor raise. Of those who
        subscribe as one `group` each message goes to one."""
        number = next(self._numbers)
        self._subscriptions[number] = (subject, group, on_message)
        if self._wire is not None:
            self._wire.write(_sub(subject, group, number))
        return number

    async def unsubscribe(self, *numbers: int) -> None:
        """What the server had sent before has been handed on when this returns."""
        wire = self._wire
        if wire is not None:
            wire.write("".join(f"UNSUB {number}\r\n" for number in numbers).encode())
            with contextlib.suppress(TimeoutError, ConnectionError):
                await wire.round_trip(HANDSHAKE_S)
        for number in numbers:
            self._subscriptions.pop(number, None)

    def publish(self, subject: str, payload: bytes = b"", reply: str = "") -> None:
        head = f"PUB {subject} {reply} {len(payload)}\r\n" if reply else f"PUB {subject} {len(payload)}\r\n"
        message = b"".join((head.encode(), payload, b"\r\n"))
        if self._wire is not None:
            self._wire.write(message)
        elif self._kept_bytes + len(message) <= MOST_KEPT_BYTES:
            self._kept.append(message)
            self._kept_bytes += len(message)

    async def request(self, subject: str, payload: bytes = b"", within_s: float = 2.0) -> tuple[bytes, bytes]:
        """Headers and payload of the answer. Raises QueueUnavailable when none comes."""
        if self._wire is None:
            raise QueueUnavailable("the queue server cannot be reached")
        reply = f"{self._reply_to}.{next(self._numbers)}"
        answer: asyncio.Future[tuple[bytes, bytes]] = asyncio.get_running_loop().create_future()
        self._requests[reply.encode()] = answer
        try:
            self.publish(subject, payload, reply)
            async with asyncio.timeout(within_s):
                return await answer
        except TimeoutError:
            raise QueueUnavailable("the queue server does not answer") from None
        finally:
            self._requests.pop(reply.encode(), None)

    async def close(self) -> None:
        """What was published before is sent."""
        self._closed = True
        wire, self._wire = self._wire, None
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        if wire is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HANDSHAKE_S):
                    await wire.flush_and_close()
            wire.close("closed")

    # Staying connected.

    async def _stay(self) -> None:
        while True:
            why = await self._watch()
            self._wire = None
            log.warning("the queue server is lost", extra=logs.fields(reason=why))
            self._lost()
            await self._connect(patient=True)
            log.info("the queue server is back", extra=logs.fields(name=self._name))
            await self._up()

    async def _watch(self) -> str:
        """Why the connection ended. Pings are counted, not timed: this process may itself have stood still."""
        wire = self._wire
        assert wire is not None
        asked = 0
        while not wire.lost.done():
            heard = wire.heard
            wire.ping()
            asked += 1
            await asyncio.wait([wire.lost], timeout=PING_EVERY_S)
            if wire.heard != heard:
                asked = 0
            elif asked >= MOST_UNANSWERED_PINGS:
                wire.close("the server does not answer")
        return wire.lost.result()

    def _lost(self) -> None:
        for answer in self._requests.values():
            if not answer.done():
                answer.set_exception(QueueUnavailable("the queue server was lost"))
        if self.on_down is not None:
            self.on_down("lost")

    async def _up(self) -> None:
        if self.on_up is None:
            return
        try:
            await self.on_up()
        except ShoalError as error:  # gone again, not ready yet, or without room for us: from the start
            if self._task is None:
                raise
            if not isinstance(error, QueueUnavailable):
                await asyncio.sleep(REFUSED_PAUSE_S)
            if self._wire is not None:
                self._wire.close(error.message)

    async def _connect(self, *, patient: bool) -> None:
        """Try the servers in turn until one takes us. Unless `patient`, a refusal is raised."""
        pause, said = _FIRST_RETRY_S, ""
        for address in itertools.cycle(self._addresses):
            try:
                self._wire = await self._shake_hands(address)
                return
            except (InvalidInput, ssl.SSLCertVerificationError) as error:
                why = _refused(error, address)
                if not patient:
                    raise InvalidInput(why) from None
            except _TurnedAway as error:
                why = self._turned_away = str(error)
            except (OSError, TimeoutError):
                why = said
            if patient and why != said:  # once: it is asked twice a second until it takes us again
                log.error("the queue server does not take us back", extra=logs.fields(reason=why))
                said = why
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311
            pause = min(_LAST_RETRY_S, pause * 2)

    async def _shake_hands(self, address: Address) -> Wire:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(HANDSHAKE_S):
            _, wire = await loop.create_connection(lambda: Wire(self._dispatch), address.host, address.port)
            try:
                info = await wire.info
                if address.tls or self._login.wants_tls or info.tls_required:
                    await wire.start_tls(self._login.context(), address.host)
                wire.write(connect_line(self._login, address, info.nonce, self._name))
                await self._accepted(wire, address)
            except BaseException as error:
                word = wire.refusal
                wire.close("not connected")
                if word and isinstance(error, ConnectionError):
                    raise _TurnedAway(_no_room(word, address)) from None
                raise
        self.max_payload = info.max_payload
        for number, (subject, group, _) in self._subscriptions.items():
            wire.write(_sub(subject, group, number))
        for message in self._kept:
            wire.write(message)
        self._kept.clear()
        self._kept_bytes = 0
        return wire

    async def _accepted(self, wire: Wire, address: Address) -> None:
        try:
            await wire.round_trip(HANDSHAKE_S)
        except ConnectionError:
            if "auth" in wire.refusal.lower():
                raise InvalidInput(f"the queue server {address} refuses us: {wire.refusal}") from None
            raise

    # Messages.

    def _dispatch(self, number: int, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        subscription = self._subscriptions.get(number)
        if subscription is None:
            return
        try:
            subscription[2](subject, reply, headers, payload)
        except Exception:
            log.exception("a message of the queue could not be used", extra=logs.fields(subject=subject.decode()))

    def _replied(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        answer = self._requests.get(subject)
        if answer is not None and not answer.done():
            answer.set_result((headers, payload))


class _TurnedAway(ConnectionError):
    """The server said why it does not take us now; it may later."""


def _no_room(word: str, address: Address) -> str:
    """`maximum connections exceeded` is what a server says that has as many as its configuration allows."""
    advice = "; its max_connections changes it" if "maximum connections" in word.lower() else ""
    return f"the queue server {address} does not take us: {word}{advice}"


def _sub(subject: str, group: str, number: int) -> bytes:
    return f"SUB {subject} {group} {number}\r\n".encode() if group else f"SUB {subject} {number}\r\n".encode()


def _refused(error: InvalidInput | ssl.SSLCertVerificationError, address: Address) -> str:
    if isinstance(error, InvalidInput):
        return error.message
    return f"the certificate of {address} is not trusted: {error.verify_message}"
