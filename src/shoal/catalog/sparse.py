"""SPLADE as sentence-transformers saves it: a masked language model, and how its logits become weights. Of the
models that are asked without a network, the query's side is a table of weights.
"""

from shoal.catalog.configs import RouterConfig, SpladeConfig, read
from shoal.catalog.layout import Layout, prompts
from shoal.catalog.pooling import module_folder
from shoal.protocol.errors import InvalidInput
from shoal.protocol.facts import Sparse

TABLE = "query_table.json"
"""Token → weight, written by the store where a model has its table as a tensor."""
PUBLISHED_TABLE = "idf.json"
_ACTIVATIONS = {"relu": "log1p_relu", "log1p_relu": "log1p_log1p_relu"}
"""Their activation comes before a log1p, ours names both."""


def is_sparse(layout: Layout) -> bool:
    kinds = {module.kind for module in layout.modules or ()}
    if "Router" in kinds:
        router = read(layout.folder, "router_config.json", RouterConfig)
        kinds |= set(router.kinds("query") + router.kinds("document")) if router is not None else {"SpladePooling"}
    return layout.sentence.model_type == "SparseEncoder" or bool(
        kinds & {"SpladePooling", "MLMTransformer", "SparseStaticEmbedding"}
    )


def plain() -> dict[str, object]:
    """A masked language model without modules: SPLADE as it was published first."""
    return {"tasks": ["encode"], "kinds": ["sparse"], "sparse": Sparse()}


def from_modules(layout: Layout) -> dict[str, object]:
    """1. Transformer and SpladePooling for both sides; 2. a Router whose query side is a table."""
    modules = layout.modules or []
    kinds = [module.kind for module in modules]
    if kinds == ["Router"]:  # 2
        head, table = _routed(layout)
        queries = "table"
    elif kinds in (["MLMTransformer", "SpladePooling"], ["Transformer", "SpladePooling"]):  # 1
        head, table, queries = module_folder(modules[1].path), "", "network"
    else:
        raise InvalidInput(f"a sparse encoder of {', '.join(kinds)} is not known here; known: {_KNOWN}")
    config = read(layout.folder, f"{head}/config.json", SpladeConfig) or SpladeConfig()
    how = {"pooling": config.pooling_strategy, "activation": _ACTIVATIONS[config.activation_function]}
    facts = {**how, "queries": queries, "table": table}
    return {"tasks": ["encode"], "kinds": ["sparse"], "sparse": facts, **prompts(layout.sentence)}


_KNOWN = "Transformer with SpladePooling, or a Router with SparseStaticEmbedding for queries"


def _routed(layout: Layout) -> tuple[str, str]:
    """The folder of the documents' pooling, and the file of the queries' table."""
    router = read(layout.folder, "router_config.json", RouterConfig)
    if router is None:
        raise InvalidInput("modules.json names a Router, but there is no router_config.json")
    query, document = router.kinds("query"), router.kinds("document")
    is_known = set(router.structure) == {"query", "document"} and query == ["SparseStaticEmbedding"]
    if not is_known or document not in (["MLMTransformer", "SpladePooling"], ["Transformer", "SpladePooling"]):
        raise InvalidInput(
            f"a Router of {' and '.join(router.structure)} through {', '.join(query + document)} is not known; "
            f"known: {_KNOWN}"
        )
    static = module_folder(router.structure["query"][0])
    folder = layout.folder
    has_tensor = (folder / static / "model.safetensors").is_file()
    if layout.is_whole and not has_tensor and not (folder / PUBLISHED_TABLE).is_file():
        raise InvalidInput(f"queries have no table: {static}/model.safetensors and {PUBLISHED_TABLE} are missing")
    return module_folder(router.structure["document"][1]), TABLE if has_tensor else PUBLISHED_TABLE


def static_folder(layout: Layout) -> str:
    """Where the query's table is a tensor; "" for any other model."""
    router = read(layout.folder, "router_config.json", RouterConfig)
    if router is None or router.kinds("query") != ["SparseStaticEmbedding"]:
        return ""
    return module_folder(router.structure["query"][0])
