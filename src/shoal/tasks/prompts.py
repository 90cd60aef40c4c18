"""What the tasks share: may this model be asked, which prefix goes before a text, is there a text."""

from shoal.protocol.errors import EmptyInput, Fault, InvalidInput
from shoal.protocol.facts import Facts


def require_task(task: str, facts: Facts) -> None:
    """Raises InvalidInput, naming what the model can do, where `task` is not among it."""
    if not facts.can(task):
        raise InvalidInput(f"this model cannot {task}; it can {', '.join(facts.tasks)}", tasks=list(facts.tasks))


def named_prompt(name: str, facts: Facts) -> str:
    """The prefix called `name`. Raises InvalidInput that lists the names where the model has none such."""
    if name not in facts.prompts:
        known = ", ".join(sorted(facts.prompts)) or "none"
        raise InvalidInput(
            f"no prompt named {name!r}; this model has: {known}",
            prompts=sorted(facts.prompts),
            param="prompt_name",
        )
    return facts.prompts[name]


def role_prompt(is_query: bool, facts: Facts) -> str | None:
    """The prefix for queries, or for what is searched; None where the model has none.

    Under the names and in the order in which sentence-transformers looks for it.
    """
    names = ("query",) if is_query else ("document", "passage", "corpus")
    return next((facts.prompts[name] for name in names if name in facts.prompts), None)


def default_prompt(facts: Facts) -> str:
    return facts.prompts.get(facts.default_prompt, "")


def text_fault(text: str) -> Fault | None:
    """Why `text` cannot be computed: it holds nothing to read, or is not Unicode text; None where it can.

    Nothing to read: no character, or only white space and NULs.
    """
    if not text or text.isspace() or ("\0" in text and not text.replace("\0", " ").strip()):
        return EmptyInput("the text is empty or only white space").fault()
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as e:
            return InvalidInput(f"the text holds a lone surrogate at character {e.start}").fault()
    return None
