"""The notebook of the docs: it runs, and what it prints is what it shows."""

from copy import deepcopy
from pathlib import Path

import nbformat
from nbclient import NotebookClient

TOUR = Path(__file__).parent.parent / "docs" / "tour.ipynb"
SHORTER = {"TabularOptions()": "TabularOptions(log_every=10)", "False, 6_000": "False, 600"}  # of its last figure


def printed(notebook: nbformat.NotebookNode) -> list[str]:
    return [out["text"] for cell in notebook.cells for out in cell.get("outputs", []) if out["output_type"] == "stream"]


def pictures(notebook: nbformat.NotebookNode) -> int:
    return sum("image/png" in out.get("data", {}) for cell in notebook.cells for out in cell.get("outputs", []))


def test_the_tour_runs() -> None:
    shown = nbformat.read(TOUR, as_version=4)
    notebook = deepcopy(shown)
    for cell in notebook.cells:
        for text, shorter in SHORTER.items():
            cell.source = cell.source.replace(text, shorter)
    patient = {"timeout": 500, "iopub_timeout": 60}  # seconds: other tests run beside it
    ran = NotebookClient(notebook, resources={"metadata": {"path": TOUR.parent}}, **patient).execute()
    assert pictures(ran) == pictures(shown) == 3
    assert printed(ran) == printed(shown) != []
