"""Docstrings as Sphinx can read them: they are plain text, in which stars, bars and underscores mean themselves.

A Sphinx extension. Blocks that are indented after an empty line (formulas, listings) are kept letter for letter.
"""

import re
from typing import Any

MARKS = re.compile(r"(``.*?``|`[^`]*`|:\w+:`[^`]*`)|([*|\\]|_(?!\w))")
TABLE = re.compile(r"={3,}(\s+={3,})+\s*$")
OF_SCIKIT_LEARN = re.compile(r"set_\w+_request$|get_metadata_routing$")


def literal_blocks(lines: list[str]) -> list[str]:
    """Put ``::`` before each block that is indented deeper than the text above it."""
    result: list[str] = []
    previous = ""
    for number, line in enumerate(lines):
        after_gap = number > 0 and not lines[number - 1].strip()
        if line.strip() and after_gap and previous and _indent(line) > _indent(previous):
            if not (
                previous.endswith("::") or _literal_above(result, _indent(previous)) or line.lstrip()[:4] == ">>> "
            ):
                result += [" " * _indent(previous) + "::", ""]
        result.append(line)
        previous = line if line.strip() else previous
    return result


def _literal_above(lines: list[str], indent: int) -> bool:
    """Whether the text of that indent belongs to a block that is literal already."""
    for line in reversed(lines):
        if line.strip() and _indent(line) < indent:
            return line.endswith("::")
    return False


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def escaped(lines: list[str]) -> list[str]:
    """Escape what reStructuredText would take for markup, outside of code, literal blocks and tables' rules."""
    result: list[str] = []
    literal: int | None = None  # indent of the text above a literal block
    example = False
    for line in lines:
        text = line.strip()
        example = text.startswith(">>>") or (example and bool(text))
        if literal is not None and text and _indent(line) <= literal:
            literal = None
        keep = literal is not None or example or TABLE.match(text) or set(text) in ({"-"}, {"="})
        result.append(line if keep else MARKS.sub(lambda found: found[1] or "\\" + found[2], line))
        if literal is None and text.endswith("::"):
            literal = _indent(line)
    return result


def process(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Rewrite a docstring in place, before its sections are read."""
    lines[:] = escaped(literal_blocks(lines))


def skip(app: Any, what: str, name: str, thing: Any, skipped: bool, options: Any) -> bool | None:
    """Leave out what an estimator has from scikit-learn, NumPy or Python themselves."""
    home = getattr(thing, "__module__", None) or getattr(getattr(thing, "fget", None), "__module__", None) or ""
    foreign = home.split(".")[0] not in ("", "bayesmtfs") and callable(thing)
    return True if foreign or OF_SCIKIT_LEARN.match(name) else None


def setup(app: Any) -> dict[str, Any]:
    """Connect to autodoc, before napoleon."""
    app.connect("autodoc-process-docstring", process, priority=400)
    app.connect("autodoc-skip-member", skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
