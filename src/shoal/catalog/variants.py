"""Which ways to compute a model its users may choose between. Knows cards and facts; what a runtime can really
do is its own affair.
"""

from shoal.catalog import Card, Variant
from shoal.families import all_families
from shoal.protocol.facts import Facts

_UNMEASURED = Variant(dtype="int8", tolerance=0.99, note="8-bit weights; not measured for this model")


def variants_of(card: Card, facts: Facts) -> dict[str, Variant]:
    """Those on the card; where it has none, 8-bit weights for an encoder that gives dense vectors alone and is
    of a family here: PyTorch is not asked for them. A LoRA adapter has none; those of its base can use it.

    A score or a sparse weight is not offered so: what 8 bits do to their order has to be measured first.
    """
    if card.variants or card.base:
        return card.variants
    is_dense = facts.tasks == ("encode",) and facts.kinds == ("dense",)
    is_here = facts.files == "safetensors" and facts.family in all_families()
    return {"int8": _UNMEASURED} if is_dense and is_here else {}
