"""What a person is told when a hub does not give a model: which of the hub's reasons it was, and what to do."""

import os

from shoal.catalog import Hub
from shoal.catalog.cards import all_cards
from shoal.catalog.names import near
from shoal.protocol.errors import ModelLoadFailed, ModelNotFound, ShoalError


def endpoint() -> str | None:
    """The hub that is set; None leaves it to the hub's client, which reads the setting when it is imported."""
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or None


def refusal(source: Hub, error: Exception) -> ShoalError:
    """1. Gated; 2. no such repository, or not for us to see; 3. no such revision; 4. a token
    that it does not take; 5. it cannot be asked."""
    from huggingface_hub import constants, get_token
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    at = endpoint() or constants.ENDPOINT
    url = f"{at}/{source.repo}"
    if isinstance(error, GatedRepoError):  # 1
        return ModelLoadFailed(
            f"{source.repo} is gated: accept its conditions at {url} and set HF_TOKEN to a token of that account"
        )
    if isinstance(error, RepositoryNotFoundError):  # 2
        token = "the one that is set may not read it" if get_token() else "none is set"
        meant = near(source.repo, all_cards())
        hint = f" Did you mean {meant}?" if meant and meant != source.repo else ""
        return ModelNotFound(
            f"there is no {source.repo} at {at}, or it is private: that takes an access token in HF_TOKEN, "
            f"and {token}.{hint}",
            near=meant,
        )
    if isinstance(error, RevisionNotFoundError):  # 3
        return ModelNotFound(f"{source.repo} has no revision {source.revision!r}")
    response = getattr(error, "response", None)
    if response is not None and response.status_code == 401:  # 4
        return ModelLoadFailed(f"the hub at {at} does not take the access token that is set (HF_TOKEN)")
    return ModelLoadFailed(  # 5
        f"the hub at {at} could not be asked for {source.repo}: {first_line(error)}. HF_ENDPOINT names "
        "another; a folder of the model's files can be added by its path"
    )


def not_cached(source: Hub, setting: str) -> ModelLoadFailed:
    at = f" at {source.revision}" if source.revision else ""
    return ModelLoadFailed(
        f"{setting} is set, so {source.repo}{at} was not fetched, and it is not in the hub's cache (HF_HOME). "
        "Unset it, or bring the model's folder here and run `shoal add FOLDER`"
    )


def first_line(error: Exception) -> str:
    """Of what a stranger's exception says, without its full stop; its kind where it says nothing."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")
