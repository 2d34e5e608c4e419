"""The documentation site: Sphinx with MyST Markdown; the reference is made from the docstrings of the package."""

import halfseen

project = "halfseen"
copyright = "the halfseen authors"
release = halfseen.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "numpydoc"]
exclude_patterns = ["figures"]
html_theme = "furo"
html_title = f"halfseen {release}"
myst_heading_anchors = 3
myst_enable_extensions = ["deflist"]
default_role = "literal"  # single backquotes in docstrings are code
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
