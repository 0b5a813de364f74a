"""How Sphinx builds the pages: ``uv run --group docs sphinx-build -W -j 2 -c docs docs/pages docs/site``.

The build executes the notebooks; ``-D nb_execution_mode=off`` shows them without outputs, in a minute. What it writes
needs no network to be read: formulas are drawn by the MathJax that a package of the docs group brings.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import bayesmtfs  # noqa: E402

project = "bayesmtfs"
author = "The bayesmtfs developers"
release = version = bayesmtfs.__version__
root_doc = "index"
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_design",
    # in this folder
    "docstrings",
    "gallery",
]

myst_enable_extensions = ["amsmath", "attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
myst_dmath_double_inline = True
exclude_patterns = ["notebooks/.ipynb_checkpoints", "**/__pycache__"]

nb_execution_mode = "auto"  # each notebook once, and again when it changes
nb_execution_timeout = 600
nb_execution_raise_on_error = True
nb_ipywidgets_js = {}  # nothing from a network
nb_merge_streams = True

default_role = "py:obj"
add_module_names = False
toc_object_entries_show_parents = "hide"
python_maximum_signature_line_length = 88
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "inherited-members": True}
numpydoc_show_class_members = False

# MathJax as a package ships it: the one file that draws with vectors, and needs no fonts
MATHJAX = Path(find_spec("sphinx-mathjax-offline").submodule_search_locations[0]) / "static/mathjax/tex-svg-full.js"
mathjax_path = MATHJAX.name
mathjax3_config = {"svg": {"fontCache": "local"}, "options": {"enableMenu": False}}

html_theme = "pydata_sphinx_theme"
html_title = "bayesmtfs"
html_static_path = ["static", str(MATHJAX)]
html_css_files = ["pages.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "navigation_with_keys": False,
    "show_prev_next": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"index": []}
copyright = "The bayesmtfs developers. BSD-3-Clause"  # noqa: A001
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
