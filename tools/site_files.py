"""Hook of mkdocs: the site mirrors the repository, so that the links of README, docs and bench hold as they are.

A file that a page links to and that is no page, such as an example or a picture, is copied beside it.
"""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("*.md", "docs/*.md", "bench/RESULTS.md", "bench/*/*.md", "tools/campaign/*.md")
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replace the files of docs/ by the pages of the repository and what they link to."""
    for file in files.documentation_pages():
        files.remove(file)
    pages = [page for pattern in PAGES for page in sorted(ROOT.glob(pattern))]
    linked = {(page.parent / link).resolve() for page in pages for link in LINK.findall(page.read_text("utf-8"))}
    for path in [*pages, *sorted(linked - set(pages))]:
        if path.is_file():
            files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    return files
