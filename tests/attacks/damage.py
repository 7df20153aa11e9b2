"""Run directories that something has damaged: flipped bits, and all that may befall files and directories.

A copy of a run that was stopped half way is damaged and resumed. It must end as if nothing had happened, or be refused
in one line with everything still there.
"""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

from attacks import runs
from attacks.base import Attack, Case, Outcome, fault, remove

Damage = Callable[[random.Random, Path, Path], str]  # (rng, the run, another run) -> what was done


def flip(case: Case) -> Outcome:
    """One bit of one file. Half of them are in the arrays of the newest checkpoint, which are what is read again; the
    others anywhere in the checkpoints, drawn by size or by file, or in the files beside them."""
    out = runs.copy_half(case)
    kind = case.rng.choices(("arrays", "checkpoints", "beside"), (5, 4, 1))[0]
    if kind == "arrays":
        paths = [path for path in _files(_steps(out)[-1]) if path.parent.name == "d"]
    elif kind == "checkpoints":
        paths = _files(out / "checkpoints")
    else:
        paths = [path for path in out.iterdir() if path.suffix in (".csv", ".yaml", ".json") and path.stat().st_size]
    by_size = kind == "arrays" or case.rng.random() < 0.5
    path = case.rng.choices(paths, [path.stat().st_size for path in paths] if by_size else None)[0]
    data = bytearray(path.read_bytes())
    bit = case.rng.randrange(8 * len(data))
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    return _resumed(case, out, f"bit {bit} of {path.relative_to(out)}")


def hurt(case: Case) -> Outcome:
    """One of the other damages, each in its turn."""
    out = runs.copy_half(case)
    name, damage = list(DAMAGES.items())[case.number % len(DAMAGES)]
    return _resumed(case, out, f"{name}: {damage(case.rng, out, runs.half_run(case.site, seed=1))}")


def _resumed(case: Case, out: Path, what: str) -> Outcome:
    before = runs.files(out)
    result = case.site.call(runs.words("device", out), case.scratch)
    text = fault(result, one_line=False)
    if text is None and result.status == 0:
        text = runs.differences(case.site, "device", out)
    elif text is None:
        text = runs.lost(before, out)
    return Outcome((f"{what}: {text}",) if text else ())


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)


def _steps(out: Path) -> list[Path]:
    folders = (path for path in (out / "checkpoints").iterdir() if path.name.isdigit())
    return sorted(folders, key=lambda path: int(path.name))


def _items(step: Path) -> list[Path]:
    return sorted(path for path in step.iterdir() if path.is_dir())


def _some_file(rng: random.Random, out: Path) -> Path:
    return rng.choice(_files(out / "checkpoints"))


def _delete_file(rng: random.Random, out: Path, other: Path) -> str:
    path = _some_file(rng, out)
    path.unlink()
    return str(path.relative_to(out))


def _truncate(rng: random.Random, out: Path, other: Path) -> str:
    path = _some_file(rng, out)
    with path.open("r+b") as file:
        file.truncate(rng.randrange(path.stat().st_size))
    return str(path.relative_to(out))


def _empty(rng: random.Random, out: Path, other: Path) -> str:
    path = _some_file(rng, out)
    path.write_bytes(b"")
    return str(path.relative_to(out))


def _append(rng: random.Random, out: Path, other: Path) -> str:
    path = _some_file(rng, out)
    with path.open("ab") as file:
        file.write(rng.randbytes(rng.randint(1, 64)))
    return str(path.relative_to(out))


def _overwrite(rng: random.Random, out: Path, other: Path) -> str:
    """As after a lost sector: a block of zeros or of noise."""
    path = _some_file(rng, out)
    data = bytearray(path.read_bytes())
    begin, length = rng.randrange(len(data)), rng.randint(1, 512)
    block = rng.choice((bytes, rng.randbytes))(len(data[begin : begin + length]))
    data[begin : begin + length] = block
    path.write_bytes(data)
    return str(path.relative_to(out))


def _delete_folder(rng: random.Random, out: Path, other: Path) -> str:
    folder = rng.choice([path for path in (out / "checkpoints").rglob("*") if path.is_dir()])
    shutil.rmtree(folder)
    return str(folder.relative_to(out))


def _file_for_folder(rng: random.Random, out: Path, other: Path) -> str:
    folder = rng.choice([path for path in (out / "checkpoints").rglob("*") if path.is_dir()])
    shutil.rmtree(folder)
    folder.write_bytes(b"")
    return str(folder.relative_to(out))


def _folder_for_file(rng: random.Random, out: Path, other: Path) -> str:
    path = _some_file(rng, out)
    path.unlink()
    path.mkdir()
    return str(path.relative_to(out))


def _swap_items(rng: random.Random, out: Path, other: Path) -> str:
    """An item of an older checkpoint in the newest one."""
    one, two = _steps(out)[-1], rng.choice(_steps(out)[:-1])
    item = rng.choice(_items(one))
    shutil.rmtree(item)
    shutil.copytree(two / item.name, item)
    return f"{item.name} of {two.name} in {one.name}"


def _swap_steps(rng: random.Random, out: Path, other: Path) -> str:
    one, two = rng.sample(_steps(out), 2)
    one.rename(out / "between")
    two.rename(one)
    (out / "between").rename(two)
    return f"{one.name} and {two.name}"


def _foreign_item(rng: random.Random, out: Path, other: Path) -> str:
    step = _steps(out)[-1]
    item = rng.choice(_items(step))
    shutil.rmtree(item)
    shutil.copytree(_steps(other)[-1] / item.name, item)
    return f"{item.name} of another run in {step.name}"


def _foreign_step(rng: random.Random, out: Path, other: Path) -> str:
    step = _steps(out)[-1]
    shutil.rmtree(step)
    shutil.copytree(_steps(other)[-1], step)
    return f"{step.name} of another run"


def _foreign_metrics(rng: random.Random, out: Path, other: Path) -> str:
    shutil.copy(other / "metrics.csv", out / "metrics.csv")
    return "metrics.csv of another run"


def _foreign_directory(rng: random.Random, out: Path, other: Path) -> str:
    """Somebody's own files under the name of the run directory."""
    shutil.rmtree(out)
    out.mkdir()
    (out / "thesis.txt").write_text("years of work")
    return "a directory that no run wrote"


def _extra_files(rng: random.Random, out: Path, other: Path) -> str:
    folder = rng.choice([out, *(path for path in (out / "checkpoints").rglob("*") if path.is_dir())])
    name = rng.choice(("notes.txt", ".hidden", "7", "x.orbax-checkpoint-tmp", "naïve file"))
    (folder / name).write_bytes(rng.randbytes(8))
    return str((folder / name).relative_to(out))


def _empty_step(rng: random.Random, out: Path, other: Path) -> str:
    name = rng.choice(("20", "999", "0", "-1", "1e3", "00012"))
    (out / "checkpoints" / name).mkdir()
    return f"an empty checkpoint {name}"


def _no_steps(rng: random.Random, out: Path, other: Path) -> str:
    shutil.rmtree(out / "checkpoints")
    if rng.random() < 0.5:
        (out / "checkpoints").mkdir()
    return "all checkpoints removed"


def _links(rng: random.Random, out: Path, other: Path) -> str:
    """A file kept elsewhere, as some file systems and people do, or a link that leads nowhere."""
    path = _some_file(rng, out)
    elsewhere = out.parent / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    if rng.random() < 0.5:
        elsewhere.unlink()
    return str(path.relative_to(out))


def _other_file(rng: random.Random, out: Path, other: Path) -> str:
    """config.yaml, metrics.csv or summary.json removed, emptied or full of noise."""
    path = out / rng.choice(("config.yaml", "metrics.csv", "summary.json"))
    kind = rng.choice(("removed", "emptied", "noise", "folder"))
    remove(path)
    if kind == "folder":
        path.mkdir()
    elif kind != "removed":
        path.write_bytes(b"" if kind == "emptied" else rng.randbytes(200))
    return f"{path.name} {kind}"


def _rows(rng: random.Random, out: Path, other: Path) -> str:
    """Rows of metrics.csv missing, doubled or in another order."""
    path = out / "metrics.csv"
    header, *rows = path.read_text().splitlines()
    kind, i = rng.choice(("missing", "doubled", "swapped", "header")), rng.randrange(len(rows))
    if kind == "missing":
        del rows[i]
    elif kind == "doubled":
        rows.insert(i, rows[i])
    elif kind == "swapped":
        rows[0], rows[-1] = rows[-1], rows[0]
    else:
        header = header.replace("loss_value", "loss_valve")
    path.write_text("".join(f"{line}\n" for line in (header, *rows)))
    return f"row {i} {kind}"


def _digits(rng: random.Random, out: Path, other: Path) -> str:
    """A digit of metrics.csv is another one."""
    path = out / "metrics.csv"
    text = path.read_text()
    places = [i for i, letter in enumerate(text) if letter.isdigit() and i > text.index("\n")]
    i = rng.choice(places)
    path.write_text(text[:i] + str((int(text[i]) + rng.randint(1, 9)) % 10) + text[i + 1 :])
    return f"character {i} of metrics.csv"


DAMAGES: dict[str, Damage] = {
    "file deleted": _delete_file,
    "file truncated": _truncate,
    "file emptied": _empty,
    "file longer": _append,
    "block overwritten": _overwrite,
    "folder deleted": _delete_folder,
    "file for a folder": _file_for_folder,
    "folder for a file": _folder_for_file,
    "item of an older checkpoint": _swap_items,
    "checkpoints exchanged": _swap_steps,
    "item of another run": _foreign_item,
    "checkpoint of another run": _foreign_step,
    "metrics of another run": _foreign_metrics,
    "foreign directory": _foreign_directory,
    "extra file": _extra_files,
    "extra checkpoint": _empty_step,
    "no checkpoints": _no_steps,
    "links": _links,
    "other file": _other_file,
    "rows": _rows,
    "digits": _digits,
}

ATTACKS = (
    Attack("flipped bits", flip, 200, 0.28, short=3),
    Attack("other damages", hurt, 100, 0.15, short=2),
)
