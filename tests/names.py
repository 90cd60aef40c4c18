"""The models that tests ask for by name."""

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
RERANKER = "cross-encoder/ms-marco-MiniLM-L-12-v2"
BGE = "BAAI/bge-small-en-v1.5"
VIRTUAL = "shoal/virtual-encoder"
VIRTUAL_RERANKER = "shoal/virtual-reranker"
VIRTUAL_EVERY_KIND = "shoal/virtual-every-kind"
VIRTUAL_LABELS = "shoal/virtual-labels"
