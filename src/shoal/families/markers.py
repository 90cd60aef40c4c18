"""The marker tokens that a tokenizer puts around one text or a pair ([CLS] … [SEP] … [SEP]), learned from it once
by a probe, so that markers can be added to token ids that were cut or given by a caller.
"""

from collections.abc import Sequence

import msgspec
from tokenizers import Tokenizer

from shoal.protocol.errors import ModelLoadFailed


class Markers(msgspec.Struct, frozen=True):
    """`around` holds the markers before each text and after the last, `around_segments` their segment ids,
    `segments` the segment of each text."""

    around: tuple[list[int], ...]
    around_segments: tuple[list[int], ...]
    segments: tuple[int, ...]

    @property
    def count(self) -> int:
        return sum(map(len, self.around))

    def all_segments(self) -> set[int]:
        return {*self.segments, *(segment for part in self.around_segments for segment in part)}

    def join(self, texts: Sequence[list[int]]) -> tuple[list[int], list[int]]:
        """Token ids and segment ids of `texts` with the markers between them."""
        ids, segments = list(self.around[0]), list(self.around_segments[0])
        for i, text in enumerate(texts):
            ids += text
            ids += self.around[i + 1]
            segments += [self.segments[i]] * len(text)
            segments += self.around_segments[i + 1]
        return ids, segments

    def with_second(self, token: int) -> "Markers":
        """The same with one more marker, after the first."""
        (first, *others), (segment, *segments) = self.around, self.around_segments
        return Markers(
            ([*first[:1], token, *first[1:]], *others), ([*segment[:1], 0, *segment[1:]], *segments), self.segments
        )


def learn_markers(tokenizer: Tokenizer, texts: int) -> Markers:
    """The markers around one text or two. Raises ModelLoadFailed where the probe shows no text at all."""
    probe = tokenizer.encode("a", "a" if texts == 2 else None, add_special_tokens=True)
    around: list[list[int]] = [[]]
    around_segments: list[list[int]] = [[]]
    segments: list[int] = []
    for token, segment, text in zip(probe.ids, probe.type_ids, probe.sequence_ids, strict=True):
        if text is None:
            around[-1].append(token)
            around_segments[-1].append(segment)
        elif text == len(segments):
            segments.append(segment)
            around.append([])
            around_segments.append([])
    if len(segments) != texts:
        raise ModelLoadFailed(f"tokenizer.json does not say how {texts} texts are marked")
    return Markers(tuple(around), tuple(around_segments), tuple(segments))
