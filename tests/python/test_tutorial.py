"""The tutorial's chapters run from the first cell to the last."""

import json
import os
from pathlib import Path

import nbformat
import pytest
from ipykernel.kernelspec import write_kernel_spec
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

FOLDER = Path(__file__).parents[2] / "docs" / "tutorial"
CHAPTERS = sorted(FOLDER.glob("*.ipynb"))
LAUNCHERS = ("STARLING_RANK", "STARLING_SIZE", "STARLING_FLOCK")


def test_there_are_seven_and_the_readme_links_them():
    assert len(CHAPTERS) == 7
    links = (FOLDER / "README.md").read_text()
    assert [chapter.name for chapter in CHAPTERS if f"({chapter.name})" not in links] == []


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.stem)
def test_committed_without_outputs(chapter):
    notebook = json.loads(chapter.read_text())
    assert notebook["nbformat"] == 4 and notebook["metadata"]["kernelspec"]["name"] == "python3"
    nbformat.validate(notebook)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.stem)
def test_chapter_runs(chapter, tmp_path, monkeypatch):
    # The notebook's kernel is the Python that runs this test, whatever else is registered as python3.
    write_kernel_spec(str(tmp_path / "jupyter" / "kernels" / "python3"))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    notebook = nbformat.read(chapter, as_version=4)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
    client = NotebookClient(notebook, timeout=120, kernel_name="python3",
                            resources={"metadata": {"path": str(tmp_path)}})
    try:
        client.execute(env=environment)
    except CellExecutionError as error:
        pytest.fail(f"{chapter.name}: {error}")
    figures = [output for cell in notebook.cells for output in cell.get("outputs", [])
               if "image/png" in output.get("data", {})]
    assert len(figures) >= 2
