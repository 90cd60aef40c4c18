"""Keys that let clients in: what each is for and until when, as `keys/<id>.json` in the object store.

Knows records and scopes. Does not know requests or headers (gateway/access.py), nor keys that stand in a server's
environment or in a file.
"""

import fnmatch
import hashlib
import logging
import re
import secrets
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import msgspec

from shoal.observe import log as logs
from shoal.protocol.errors import Conflict, InvalidInput, NotFound

if TYPE_CHECKING:
    from shoal.catalog.objects import Objects

log = logging.getLogger("shoal.keys")
PREFIX = "shoal_"
ADMIN, INFER, PUSH = "admin", "infer", "push:"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_GLOB = re.compile(r"[A-Za-z0-9._/*-]{1,128}")
_SHAPE = re.compile(rf"{PREFIX}([0-9a-f]{{12}})_[0-9a-f]{{64}}")


class Key(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Times in unix seconds; None where there is no such moment.

    `digest` is the sha256 of the whole key. A slow hash, salted, is for passwords, which can be guessed: this
    secret is 256 random bits, and whoever finds it from its digest has broken sha256. A slow one would be paid
    with every request.
    """

    id: str
    name: str
    digest: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    scopes: tuple[str, ...]
    created: float
    expires: float | None = None
    revoked: float | None = None

    def is_good(self, now: float) -> bool:
        return self.revoked is None and (self.expires is None or now < self.expires)


def make(name: str, scopes: Iterable[str], now: float, expires: float | None = None) -> tuple[str, Key]:
    """A new key, and its record. Raises InvalidInput for a name or scope that cannot be."""
    if not _NAME.fullmatch(name):
        raise InvalidInput(f"{name!r} cannot name a key: use up to 64 letters, digits, `.`, `_`, `@`, `-`")
    wanted = tuple(dict.fromkeys(check_scope(scope) for scope in scopes))
    if not wanted:
        raise InvalidInput("a key without a scope is for nothing; --scope takes infer, push:<names> or admin")
    if expires is not None and expires <= now:
        raise InvalidInput("the key would have expired already")
    name_of_it = secrets.token_hex(6)
    plain = f"{PREFIX}{name_of_it}_{secrets.token_hex(32)}"
    digest = hashlib.sha256(plain.encode()).hexdigest()
    return plain, Key(id=name_of_it, name=name, digest=digest, scopes=wanted, created=now, expires=expires)


def check_scope(scope: str) -> str:
    """`scope` as it is. Raises InvalidInput where there is none like it."""
    glob = scope.removeprefix(PUSH) if scope.startswith(PUSH) else None
    if scope not in (ADMIN, INFER) and (glob is None or not _GLOB.fullmatch(glob)):
        raise InvalidInput(
            f"{scope!r} is no scope; there are infer, admin, and push:<names>, such as push:team/contracts or "
            "push:team/*"
        )
    return scope


def allows(scopes: Iterable[str], needed: str) -> bool:
    """Whether a key of `scopes` may do what needs `needed`: "" any key, "infer", "push:" whatever name, or
    "push:team/model". In a scope `*` stands for any characters, also for a slash.
    """
    name = needed.removeprefix(PUSH) if needed.startswith(PUSH) else None
    for scope in scopes:
        if scope == ADMIN or needed in ("", scope):
            return True
        if name is None or not scope.startswith(PUSH):
            continue
        if not name or fnmatch.fnmatchcase(name, scope.removeprefix(PUSH)):
            return True
    return False


def id_in(plain: str) -> str:
    """The id in a key of ours, "" in anything else."""
    found = _SHAPE.fullmatch(plain)
    return found[1] if found else ""


class Keys:
    """The records. Reading again reads only those that changed."""

    def __init__(self, objects: "Objects") -> None:
        self._objects = objects
        self._seen: dict[str, tuple[object, Key | None]] = {}

    async def all(self) -> dict[str, Key | None]:
        """By id; None for a record that cannot be read, which lets nobody in and is a key all the same."""
        found: dict[str, tuple[object, Key | None]] = {}
        for entry in await self._objects.list("keys/"):
            version = (entry.etag, entry.size_bytes, entry.modified)
            name = entry.key.removeprefix("keys/").removesuffix(".json")
            known = self._seen.get(name)
            found[name] = known if known is not None and known[0] == version else (version, await self._read(name))
        self._seen = found
        return {name: key for name, (_, key) in sorted(found.items())}

    async def create(self, name: str, scopes: Iterable[str], now: float, expires: float | None = None) -> str:
        """The key itself, which is kept nowhere. Raises InvalidInput, Conflict where a good key has that name."""
        plain, key = make(name, scopes, now, expires)
        if any(
            other is not None and other.name == name and other.is_good(now)
            for other in (await self.all()).values()
        ):
            raise Conflict(f"there is a key of the name {name} already; revoke it first, or take another name")
        if not await self._objects.create(_place(key.id), _record(key)):
            raise Conflict("two keys drew the same id; ask again")
        return plain

    async def revoke(self, asked: str, now: float) -> Key:
        """From now on it lets nobody in, and says why. `asked` is its name or id. Raises NotFound, Conflict."""
        key = self._the_one(asked, await self.all(), now)
        gone = key if key.revoked is not None else msgspec.structs.replace(key, revoked=now)
        await self._objects.put(_place(key.id), _record(gone))
        return gone

    async def forget(self, asked: str, now: float) -> Key:
        """As if it had never been. Raises NotFound, Conflict."""
        key = self._the_one(asked, await self.all(), now)
        await self._objects.delete(_place(key.id))
        return key

    def _the_one(self, asked: str, keys: dict[str, Key | None], now: float) -> Key:
        """By id, else the only one of that name that is good, else the last made of that name."""
        if (exactly := keys.get(asked)) is not None:
            return exactly
        named = [key for key in keys.values() if key is not None and key.name == asked]
        if not named:
            raise NotFound(f"no key has the name or id {asked!r}; `shoal key list` shows them")
        good = [key for key in named if key.is_good(now)]
        if len(good) > 1:
            raise Conflict(f"{len(good)} keys have the name {asked}; say which by its id: {_ids(good)}")
        return good[0] if good else max(named, key=lambda key: key.created)

    async def _read(self, name: str) -> Key | None:
        from shoal.catalog.objects import NotThere

        try:
            key = msgspec.json.decode(await self._objects.get(_place(name)), type=Key)
        except (NotThere, msgspec.DecodeError, UnicodeDecodeError) as error:
            log.warning("a key's record cannot be read", extra=logs.fields(key=name, reason=str(error)))
            return None
        return key if key.id == name else None


def _place(key_id: str) -> str:
    return f"keys/{key_id}.json"


def _record(key: Key) -> bytes:
    return msgspec.json.format(msgspec.json.encode(key))


def _ids(keys: Iterable[Key]) -> str:
    return ", ".join(key.id for key in keys)
