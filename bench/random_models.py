"""An encoder and a cross-encoder of MiniLM-L12's shape with random weights, in the files that their libraries
write: `python bench/random_models.py FOLDER TOKENIZER`, where TOKENIZER is a folder with a BERT's tokenizer.json.

What they answer means nothing; what they cost is what a trained one would.
"""

import shutil
import sys
from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from transformers import BertConfig, BertForSequenceClassification, BertModel, PreTrainedModel

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")


def main(folder: Path, tokenizer: Path) -> None:
    torch.manual_seed(1)
    shape = {"hidden_size": 384, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 1536}
    shape |= {"initializer_range": 0.1}  # at the usual 0.02 all texts would score alike
    save(BertForSequenceClassification(BertConfig(num_labels=1, **shape)), folder / "reranker", tokenizer)
    save(BertModel(BertConfig(**shape)), folder / "bare", tokenizer)
    network = Transformer(str(folder / "bare"), max_seq_length=512)
    SentenceTransformer(modules=[network, Pooling(384, "mean"), Normalize()]).save(str(folder / "encoder"))
    shutil.rmtree(folder / "bare")


def save(network: PreTrainedModel, folder: Path, tokenizer: Path) -> None:
    network.save_pretrained(folder)
    for name in TOKENIZER_FILES:
        if (tokenizer / name).exists():
            shutil.copy(tokenizer / name, folder)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
