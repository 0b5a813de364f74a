"""The gallery: a card for each notebook, with its question and the first picture that it drew.

A Sphinx extension with one directive, ``gallery``, whose lines are patterns of page names; pages are sorted by name.
It also spreads the notebooks evenly over what is read, so that processes which read in parallel execute some each.
"""

import fnmatch
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective


class Cards(nodes.General, nodes.Element):
    """Place of the cards, until the notebooks have been executed."""


class Gallery(SphinxDirective):
    """Cards of all pages that match a pattern."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Leave a place, since the pictures are not there yet."""
        return [Cards(patterns=[line.strip() for line in self.content if line.strip()])]


def fill(app: Any, doctree: nodes.document, docname: str) -> None:
    """Put the cards into their places."""
    for place in list(doctree.findall(Cards)):
        pages = sorted(n for n in app.env.found_docs if any(fnmatch.fnmatch(n, p) for p in place["patterns"]))
        cards = nodes.container(classes=["gallery"])
        cards += [_card(app, docname, page) for page in pages]
        place.replace_self(cards)


def _card(app: Any, docname: str, page: str) -> nodes.Node:
    address = app.builder.get_relative_uri(docname, page)
    link = nodes.reference("", "", internal=True, refuri=address, classes=["gallery-card"])
    pictures = [path for path, (pages, _) in app.env.images.items() if page in pages]
    if pictures:
        shown = pictures[0]
        link += nodes.image(uri=shown, candidates={"*": shown}, alt="")
    link += nodes.inline("", app.env.titles[page].astext(), classes=["gallery-title"])
    return nodes.paragraph("", "", link)


def interleave(app: Any, env: Any, docnames: list[str]) -> None:
    """Spread notebooks over the list of pages to read."""
    slow = [name for name in docnames if name.startswith("notebooks/")]
    quick = [name for name in docnames if not name.startswith("notebooks/")]
    places = {name: (number + 0.5) / len(names) for names in (slow, quick) for number, name in enumerate(names)}
    docnames.sort(key=places.__getitem__)


def setup(app: Any) -> dict[str, Any]:
    """Name the directive."""
    app.add_node(Cards)
    app.add_directive("gallery", Gallery)
    app.connect("doctree-resolved", fill)
    app.connect("env-before-read-docs", interleave)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
