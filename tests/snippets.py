"""The fenced blocks of the documents, and what the comment before each says about running it.

``<!-- run: SETUP -->`` runs the shell commands of a block in a folder of its own, after those of
SETUP, which may be empty; a SETUP that names the file ``snippet`` runs the block itself. In a block
of ``$ command`` lines the lines between them are the expected output. ``<!-- not run: REASON -->``
leaves a block out. Blocks of Python with ``>>>`` need no comment: doctest runs them; nor do
properties files: their keys are checked.
"""

import re
from pathlib import Path
from typing import NamedTuple

_BLOCK = re.compile(
    r"^(?:<!-- (?P<verb>run|not run):(?P<rest>.*?)-->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```",
    re.MULTILINE | re.DOTALL,
)
_GENERATED = re.compile(r"<!-- generated.*?<!-- end -->", re.DOTALL)


class Snippet(NamedTuple):
    """One fenced block of a document.

    Attributes:
        where: The document and the line, for messages.
        language: What stands after the fence.
        verb: ``run``, ``not run``, or ``""`` without a comment.
        rest: The setup of what is run, or the reason why it is not.
        text: The lines of the block.
    """

    where: str
    language: str
    verb: str
    rest: str
    text: str


def snippets(document: Path) -> list[Snippet]:
    """Return the blocks of *document* that a person wrote."""
    content = _GENERATED.sub(_blank, document.read_text())
    return [
        Snippet(
            f"{document.name}:{content[: found.start()].count(chr(10)) + 1}",
            found["language"],
            found["verb"] or "",
            (found["rest"] or "").strip(),
            found["text"],
        )
        for found in _BLOCK.finditer(content)
    ]


def transcript(text: str) -> list[tuple[str, str]]:
    """Return the commands of a block of ``$ command`` lines with the output that each shows."""
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
    return [(command, output) for command, _, output in (part.partition("\n") for part in parts)]


def _blank(found: re.Match[str]) -> str:
    """Return as many empty lines, so that the lines after them keep their numbers."""
    return "\n" * found[0].count("\n")
