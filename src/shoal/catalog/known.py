"""Which kinds of model there is a family for, by `model_type` of config.json, and what that word implies.

The names are transformers'. A family is a file in families/; its name here is all that this room knows of it.
"""

FAMILIES = {
    "bert": "bert",
    "roberta": "roberta",
    "xlm-roberta": "roberta",
    "camembert": "roberta",
    "distilbert": "distilbert",
    "mpnet": "mpnet",
    "modernbert": "modernbert",
    "nomic_bert": "nomic",
    "gte": "nomic",
}

ON_PYTORCH = {
    "albert", "big_bird", "deberta", "deberta-v2", "electra", "ernie", "eurobert", "gemma2", "gemma3_text",
    "llama", "longformer", "megatron-bert", "mistral", "mt5", "qwen2", "qwen3", "rembert", "roformer", "t5",
    "umt5", "xlm-roberta-xl",
}  # fmt: skip
"""Kinds without a family here, which transformers computes: their family has its name. Each is held to
sentence-transformers by a test, also alone against batched; where padding shows in the numbers it is not here.
"""

OFFSET_POSITIONS = {"roberta", "xlm-roberta", "camembert", "mpnet", "longformer", "xlm-roberta-xl"}
"""Their first position is the padding's id plus one, so that many rows of the table are never used."""

OWN_CODE_REPLACED = {"nomic_bert"}
"""Published with code of their own, which is not run: the family here computes the same."""
