"""`purejax-sc levels`: files of levels and sheets of pictures, and how mistakes end."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from purejax_sc.cli.commands import main
from purejax_sc.envs.sokoban import boxoban
from purejax_sc.evaluation import levels

EASY = ["positions=256", "depth=40"]


def test_levels_are_written_and_drawn(tmp_path: Path, capsys) -> None:
    out, sheet = tmp_path / "levels.npy", tmp_path / "sheet.png"
    assert main(["levels", *EASY, "--num", "30", "--out", str(out), "--render", str(sheet)]) == 0
    grids = boxoban.read(out)
    assert grids.shape == (30, 10, 10)
    assert len({grid.tobytes() for grid in grids}) == 30
    with Image.open(sheet) as picture:
        assert picture.size == (5 * 164 + 4, 4 * 164 + 4)  # 20 levels of 160 pixels
    assert capsys.readouterr().out == f"wrote {out} and {sheet}\n"
    # the same levels as text
    text = tmp_path / "levels.txt"
    assert main(["levels", f"file={out}", "--num", "10", "--out", str(text), "--quiet"]) == 0
    np.testing.assert_array_equal(boxoban.read(text), grids[:10])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--out", "levels.jpg"], "let --out end in .npy"),
        (["--out", "levels.npy", "--render", "sheet.gif"], "let --render end in .png"),
        (["--out", "levels.npy", "depth=2"], "levels.depth=2"),
        (["--out", "levels.npy", "file=none.txt"], "cannot read levels from none.txt"),
        (["--out", "there.npy"], "there.npy exists: choose another file with --out"),
        (["--out", "levels.npy", "--render", "nowhere/x.png"], "choose another place with --render"),
    ],
)
def test_mistakes_are_one_line_before_any_work(words, message, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(levels, "generate", None)
    (tmp_path / "there.npy").write_text("")
    (tmp_path / "there.png").write_text("")
    assert main(["levels", "--num", "5", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"there.npy": "", "there.png": ""}
