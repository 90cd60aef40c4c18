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

OFFSET_POSITIONS = {"roberta", "xlm-roberta", "camembert", "mpnet"}
"""Their first position is the padding's id plus one, so that many rows of the table are never used."""

OWN_CODE_REPLACED = {"nomic_bert"}
"""Published with code of their own, which is not run: the family here computes the same."""
