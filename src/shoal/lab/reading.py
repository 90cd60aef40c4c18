"""HTTP/1.1 answers out of a connection's bytes, however they are cut. No I/O, and no more work than a load needs:
bodies are counted and let go, but for the beginning of a refusal and the events of a stream.
"""

import time
from collections.abc import Callable

import msgspec

KEPT_OF_REFUSAL = 400
LONGEST_HEAD = 65536
LONGEST_LINE = 1 << 20


class BrokenAnswer(Exception):
    """The bytes are no HTTP/1.1 answer; the connection is of no further use."""


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    text: str | None = None


class _Usage(msgspec.Struct):
    completion_tokens: int | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None


class Events:
    """What a stream of chat (server-sent events) says, counted. `first` is the clock at its first token, or 0."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._line = b""
        self._decode = msgspec.json.Decoder(_Event).decode
        self.first = 0.0
        self.seen = 0
        self.told = 0

    @property
    def made(self) -> int:
        """Tokens: as the server says, else one for each event that held text."""
        return self.told or self.seen

    def feed(self, data: bytes) -> None:
        *lines, self._line = (self._line + data).split(b"\n")
        if len(self._line) > LONGEST_LINE:
            raise BrokenAnswer("a line of the stream is too long")
        for line in lines:
            if line.startswith(b"data:"):
                self._event(line[5:].strip())

    def _event(self, data: bytes) -> None:
        try:
            event = self._decode(data)
        except msgspec.MsgspecError:
            return  # [DONE], or what another server adds
        if event.usage is not None:
            self.told = event.usage.completion_tokens or self.told
        for choice in event.choices:
            delta = choice.delta
            if choice.text or (delta is not None and (delta.content or delta.reasoning_content)):
                self.seen += 1
                self.first = self.first or self._clock()


class Reader:
    """One answer after another; `feed` says when one is whole, and its fields then describe it.

    Answers are asked for one at a time, so bytes after a whole one are a fault of the server.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._buffer = b""
        self._step: Callable[[], bool] = self._head
        self.status = 0
        self.closes = False
        self.retry_after_s = 0.0
        self.events: Events | None = None
        self.refusal = b""
        self._left = 0
        self._is_whole = False

    @property
    def is_begun(self) -> bool:
        """Whether part of an answer has come."""
        return self._step != self._head or bool(self._buffer)

    def feed(self, data: bytes) -> bool:
        """Take bytes; True once an answer is whole. Raises BrokenAnswer."""
        self._buffer = self._buffer + data if self._buffer else data
        while not self._is_whole and self._step():
            pass
        if not self._is_whole:
            return False
        self._is_whole, self._step = False, self._head
        if self._buffer:
            raise BrokenAnswer("more bytes than the answer has")
        return True

    def end(self) -> bool:
        """The server has closed; True if that completes an answer (one without a length)."""
        return self._step == self._until_closed

    # Each step takes what it can from the buffer, and says whether the next can go on with what is left.

    def _head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > LONGEST_HEAD or not b"HTTP/1.".startswith(self._buffer[:7]):
                raise BrokenAnswer("no HTTP/1.1 answer")
            return False
        head, self._buffer = self._buffer[: end + 2].lower(), self._buffer[end + 4 :]
        try:
            self._read_head(head)
        except (ValueError, IndexError) as e:
            raise BrokenAnswer(f"no HTTP/1.1 answer: {bytes(head[:80])!r}") from e
        return True

    def _read_head(self, head: bytes) -> None:
        if not head.startswith(b"http/1."):
            raise ValueError
        self.status = status = int(head[9:12])
        if status < 200:  # 100 Continue, 103 Early Hints: the answer follows
            return
        self.closes = b"\r\nconnection: close" in head or head.startswith(b"http/1.0")
        self.events, self.refusal, self.retry_after_s = None, b"", 0.0
        if not 200 <= status < 300:
            self.retry_after_s = _seconds(_field(head, b"retry-after"))
        elif b"\r\ncontent-type: text/event-stream" in head:
            self.events = Events(self._clock)
        length = _field(head, b"content-length")
        if b"chunked" in (_field(head, b"transfer-encoding") or b""):
            self._step = self._chunk_size
        elif length is not None or status in (204, 304):
            self._left = _natural(length or b"0", 10)
            self._step = self._body
        else:
            self.closes = True
            self._step = self._until_closed

    def _take(self, size: int) -> None:
        """The next `size` bytes of the body, or as many as are here."""
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        self._left -= len(data)
        if self.events is not None:
            self.events.feed(data)
        elif not 200 <= self.status < 300 and len(self.refusal) < KEPT_OF_REFUSAL:
            self.refusal = (self.refusal + data)[:KEPT_OF_REFUSAL]

    def _body(self) -> bool:
        self._take(self._left)
        self._is_whole = not self._left
        return False

    def _until_closed(self) -> bool:
        self._take(len(self._buffer))
        return False

    def _chunk_size(self) -> bool:
        line = self._next_line()
        if line is None:
            return False
        try:
            self._left = _natural(line.split(b";")[0].strip(), 16)
        except ValueError as e:
            raise BrokenAnswer(f"no size of a chunk: {line[:40]!r}") from e
        self._step = self._chunk if self._left else self._trailer
        return True

    def _chunk(self) -> bool:
        if self._left:
            self._take(self._left)
        if self._left or len(self._buffer) < 2:
            return False
        if not self._buffer.startswith(b"\r\n"):
            raise BrokenAnswer("a chunk is longer than its size")
        self._buffer = self._buffer[2:]
        self._step = self._chunk_size
        return True

    def _trailer(self) -> bool:
        line = self._next_line()
        self._is_whole = line == b""
        return line is not None

    def _next_line(self) -> bytes | None:
        end = self._buffer.find(b"\r\n")
        if end < 0:
            if len(self._buffer) > LONGEST_HEAD:
                raise BrokenAnswer("a line without an end")
            return None
        line, self._buffer = self._buffer[:end], self._buffer[end + 2 :]
        return line


def _field(head: bytes, name: bytes) -> bytes | None:
    at = head.find(b"\r\n" + name + b":")
    if at < 0:
        return None
    at += len(name) + 3
    return head[at : head.index(b"\r\n", at)].strip()


def _natural(digits: bytes, radix: int) -> int:
    value = int(digits, radix)
    if value < 0:
        raise ValueError(digits)
    return value


def _seconds(retry_after: bytes | None) -> float:
    """Of a Retry-After in seconds; a date counts as one second."""
    if retry_after is None:
        return 0.0
    try:
        return max(0.0, float(retry_after))
    except ValueError:
        return 1.0
