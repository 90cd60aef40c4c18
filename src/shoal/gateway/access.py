"""Who asks, and whether they may: keys against what a request needs. What is known of keys is a snapshot, replaced
whole by a task that looks at the object store every now and then; a request looks at nothing else.
"""

import asyncio
import hashlib
import hmac
import logging
import time
from collections.abc import Callable, Mapping

import msgspec

from shoal.catalog.keys import ADMIN, INFER, PUSH, Key, Keys, allows, id_in
from shoal.observe import log as logs
from shoal.protocol.errors import Forbidden, InvalidInput, Unauthorized

log = logging.getLogger("shoal.gateway")
EVERY_S = 2.0
_LATEST_S = 253402300799.0
"""The end of the year 9999."""
ANY_KEY = ""
"""What is needed of whoever only looks."""
ANY_PUSH = PUSH
"""To push something, whatever it is called."""
Headers = Mapping[bytes, bytes]


def push(name: str) -> str:
    """What changing a name needs."""
    return f"{PUSH}{name}"


class Caller(msgspec.Struct, frozen=True):
    """`id` is the key's, "" where none was asked for; `who` is what stands in the history of what they change."""

    id: str = ""
    name: str = ""
    scopes: tuple[str, ...] = (ADMIN,)

    @property
    def who(self) -> str:
        return f"{self.name} ({self.id})" if self.name else self.id or "without a key"


ANYBODY = Caller()


class Ring(msgspec.Struct, frozen=True):
    """What is known of keys. `static` are sha256 digests of those that were given at start; they may do all."""

    static: frozenset[bytes] = frozenset()
    stored: Mapping[str, Key | None] = {}
    must_ask: bool = False
    """Even where there is no key."""

    @property
    def is_asked(self) -> bool:
        """Also by a stored key that has expired or was revoked: that the last one ended must not open the door."""
        return self.must_ask or bool(self.static or self.stored)

    def caller(self, headers: Headers, now: float) -> Caller:
        """1. Where no key is asked for, anybody. 2. No key. 3. A stored key, by its id; that it was revoked or
        expired is told to its holder alone. 4. One given at start. 5. A wrong one. Raises Unauthorized.
        """
        if not self.is_asked:  # 1
            return ANYBODY
        scheme, _, raw = headers.get(b"authorization", b"").partition(b" ")
        plain = raw.strip()
        if scheme.lower() != b"bearer" or not plain:  # 2
            raise Unauthorized("a valid key is needed: send `Authorization: Bearer <key>`")
        digest = hashlib.sha256(plain).digest()
        key = self.stored.get(id_in(plain.decode("latin-1")))
        if key is not None and hmac.compare_digest(digest.hex(), key.digest):  # 3
            _check_alive(key, now)
            return Caller(key.id, key.name, key.scopes)
        if sum(hmac.compare_digest(digest, one) for one in self.static):  # 4
            return Caller(digest.hex()[:12])
        raise Unauthorized("this key is not known here: send `Authorization: Bearer <key>` with a valid one")  # 5

    def check(self, headers: Headers, needed: str, now: float) -> Caller:
        """Raises Unauthorized, and Forbidden where the key's scopes do not allow what is `needed`."""
        caller = self.caller(headers, now)
        if not allows(caller.scopes, needed):
            raise _lacking(caller, needed)
        return caller


def _check_alive(key: Key, now: float) -> None:
    if key.revoked is not None:
        raise Unauthorized(f"the key {key.name} ({key.id}) was revoked on {_day(key.revoked)}")
    if not key.is_good(now):
        raise Unauthorized(f"the key {key.name} ({key.id}) expired on {_day(key.expires or 0.0)}")


def _lacking(caller: Caller, needed: str) -> Forbidden:
    scope = "push:<name>" if needed == ANY_PUSH else needed
    return Forbidden(
        f"this needs the scope {scope}; the key {caller.who} has {', '.join(caller.scopes)}. "
        "`shoal key create --scope` makes one that has it",
        scope=scope,
    )


def _day(seconds: float) -> str:
    """Also of a record that somebody wrote by hand."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(min(max(seconds, 0.0), _LATEST_S)))


class Access:
    """The snapshot in force. Without `keys` it stays what it is at first. Where it `is_wide`, others than this
    machine's own can come in.
    """

    def __init__(
        self,
        static: frozenset[bytes] = frozenset(),
        keys: Keys | None = None,
        *,
        is_wide: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._keys, self._is_wide, self._clock = keys, is_wide, clock
        self._ring = Ring(static, {}, must_ask=is_wide)

    def check(self, headers: Headers, needed: str = INFER) -> Caller:
        """Raises Unauthorized, Forbidden. No I/O, and no slower for many keys."""
        return self._ring.check(headers, needed, self._clock())

    def is_known(self, headers: Headers) -> bool:
        """Whether somebody with any key asks, or nobody needs one."""
        try:
            self.check(headers, ANY_KEY)
        except Unauthorized:
            return False
        return True

    async def load(self) -> None:
        """Read the stored keys. Raises what the object store does where it cannot be read.

        Who was asked for a key is asked until the server ends: a store that lost its keys opens no door.
        """
        if self._keys is not None:
            self._ring = Ring(self._ring.static, await self._keys.all(), must_ask=self._ring.is_asked)

    def check_listening(self, host: str) -> None:
        """Raises InvalidInput where others could come in, and none of them has a key."""
        ring, now = self._ring, self._clock()
        if self._is_wide and not ring.static and not any(key and key.is_good(now) for key in ring.stored.values()):
            raise InvalidInput(
                f"listening on {host} lets others in, so a key is required: set SHOAL_API_KEY or --key-file, or "
                "make one with `shoal key create`"
            )

    async def watch(self) -> None:
        """Keep the snapshot current, for ever. While the store cannot be read, what was known last holds."""
        is_lost = False
        while self._keys is not None:
            await asyncio.sleep(EVERY_S)
            try:
                await self.load()
                is_lost = False
            except Exception as error:  # whatever a store raises: keys known before must go on working
                if not is_lost:
                    log.warning("keys cannot be read; those known stay", extra=logs.fields(reason=str(error)))
                is_lost = True
