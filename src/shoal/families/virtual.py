"""The family of the stand-in with no weights: read like real texts, with a word for a token. It has no network;
`runtimes/virtual.py` makes its rows up.
"""

from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import TemplateProcessing

from shoal.families import Network, Ops, Reader
from shoal.families.tokenize import TextReader
from shoal.families.weights import Checkpoint
from shoal.protocol.errors import ModelLoadFailed
from shoal.protocol.facts import Facts

_WORD, _START, _END, _MASK = "[UNK]", "[CLS]", "[SEP]", "[MASK]"


class Virtual:
    model_types = ()
    offset_positions = False
    replaces_code = ()

    def open_reader(self, folder: Path, facts: Facts) -> Reader:
        tokenizer = Tokenizer(WordLevel({_WORD: 0, _START: 1, _END: 2, _MASK: 3}, unk_token=_WORD))
        tokenizer.pre_tokenizer = WhitespaceSplit()
        tokenizer.post_processor = TemplateProcessing(
            single=f"{_START} $A {_END}",
            pair=f"{_START} $A {_END} $B:1 {_END}:1",
            special_tokens=[(_START, 1), (_END, 2)],
        )
        reader = TextReader(tokenizer, facts)
        reader.vocabulary = 2**31
        return reader

    def network(self, ops: Ops, checkpoint: Checkpoint, facts: Facts) -> Network:
        raise ModelLoadFailed("the virtual family has no network; it runs on the virtual runtime only")


FAMILY = Virtual()
