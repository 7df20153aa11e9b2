"""Run directories that something has damaged: flipped bits, and what may befall files and directories.

A copy of a run that was stopped half way is damaged and resumed. It must end as if nothing had happened, or be refused
in one line with everything still there.
"""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import runs
from case import Attack, Case, Outcome, fault

Damage = Callable[[random.Random, Path, Path], str]  # (rng, the run, another run) -> what was done


def flip(case: Case) -> Outcome:
    """Flip one bit of one file: of an array of the newest checkpoint, or of anything else."""
    out = runs.copy_half(case)
    newest = _files(out / "checkpoints" / str(runs.newest(out)))
    arrays = [path for path in newest if path.parent.name == "d"] or newest
    beside = [path for path in out.iterdir() if path.suffix in (".csv", ".yaml", ".json") and path.stat().st_size]
    paths = case.rng.choices((arrays, _files(out / "checkpoints"), beside), (5, 4, 1))[0]
    path = case.rng.choices(paths, [path.stat().st_size for path in paths])[0]
    data = bytearray(path.read_bytes())
    bit = case.rng.randrange(8 * len(data))
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    return _resumed(case, out, f"bit {bit} of {path.relative_to(out)}")


def hurt(case: Case) -> Outcome:
    """One of the other damages, each in its turn."""
    out = runs.copy_half(case)
    name, damage = list(DAMAGES.items())[case.number % len(DAMAGES)]
    return _resumed(case, out, f"{name}: {damage(case.rng, out, runs.copy_half(case, seed=1))}")


def _resumed(case: Case, out: Path, what: str) -> Outcome:
    before = runs.files(out)
    result = case.site.execute(runs.words("device", out), case.scratch)
    text = fault(result)
    if text is None:
        text = runs.lost(before, out) if result.status else runs.differences(case.site, "device", out)
    return Outcome((f"{what}: {text}",) if text else ())


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)


def _folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_dir())


def _steps(out: Path) -> list[Path]:
    folders = (path for path in (out / "checkpoints").iterdir() if path.name.isdigit())
    return sorted(folders, key=lambda path: int(path.name))


def _change(edit: Callable[[random.Random, bytes], bytes]) -> Damage:
    """Other bytes in a file of the checkpoints."""

    def damage(rng: random.Random, out: Path, other: Path) -> str:
        path = rng.choice(_files(out / "checkpoints"))
        path.write_bytes(edit(rng, path.read_bytes()))
        return str(path.relative_to(out))

    return damage


def _overwrite(rng: random.Random, data: bytes) -> bytes:
    """As after a lost sector: a block of zeros or of noise."""
    begin = rng.randrange(len(data))
    end = min(len(data), begin + rng.randint(1, 512))
    return data[:begin] + rng.choice((bytes, rng.randbytes))(end - begin) + data[end:]


def _delete_file(rng: random.Random, out: Path, other: Path) -> str:
    path = rng.choice(_files(out / "checkpoints"))
    path.unlink()
    if rng.random() < 0.5:
        path.mkdir()
    return str(path.relative_to(out))


def _delete_folder(rng: random.Random, out: Path, other: Path) -> str:
    folder = rng.choice(_folders(out / "checkpoints"))
    shutil.rmtree(folder)
    if rng.random() < 0.5:
        folder.write_bytes(b"")
    return str(folder.relative_to(out))


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


def _extra_file(rng: random.Random, out: Path, other: Path) -> str:
    path = rng.choice([out, *_folders(out / "checkpoints")]) / rng.choice(("notes.txt", ".hidden", "7", "naïve file"))
    path.write_bytes(rng.randbytes(8))
    return str(path.relative_to(out))


def _no_steps(rng: random.Random, out: Path, other: Path) -> str:
    shutil.rmtree(out / "checkpoints")
    if rng.random() < 0.5:
        (out / "checkpoints").mkdir()
    return "all checkpoints removed"


def _other_file(rng: random.Random, out: Path, other: Path) -> str:
    """config.yaml, metrics.csv or summary.json removed, emptied or full of noise."""
    path, kind = out / rng.choice(("config.yaml", "metrics.csv", "summary.json")), rng.choice(("removed", "", "noise"))
    path.unlink()
    if kind != "removed":
        path.write_bytes(rng.randbytes(200) if kind else b"")
    return f"{path.name} {kind or 'emptied'}"


def _rows(rng: random.Random, out: Path, other: Path) -> str:
    """Rows of metrics.csv missing, doubled or in another order, or another digit."""
    path = out / "metrics.csv"
    header, *rows = path.read_text().splitlines()
    kind, i = rng.choice(("missing", "doubled", "swapped", "digit")), rng.randrange(len(rows))
    if kind == "missing":
        del rows[i]
    elif kind == "doubled":
        rows.insert(i, rows[i])
    elif kind == "swapped":
        rows[0], rows[-1] = rows[-1], rows[0]
    else:
        j = rng.choice([j for j, letter in enumerate(rows[i]) if letter.isdigit()])
        rows[i] = rows[i][:j] + str((int(rows[i][j]) + rng.randint(1, 9)) % 10) + rows[i][j + 1 :]
    path.write_text("".join(f"{line}\n" for line in (header, *rows)))
    return f"row {i} {kind}"


DAMAGES: dict[str, Damage] = {
    "file truncated": _change(lambda rng, data: data[: rng.randrange(len(data))]),
    "file longer": _change(lambda rng, data: data + rng.randbytes(rng.randint(1, 64))),
    "block overwritten": _change(_overwrite),
    "file deleted": _delete_file,
    "folder deleted": _delete_folder,
    "checkpoint of another run": _foreign_step,
    "metrics of another run": _foreign_metrics,
    "foreign directory": _foreign_directory,
    "extra file": _extra_file,
    "no checkpoints": _no_steps,
    "other file": _other_file,
    "rows": _rows,
}

ATTACKS = (
    Attack("flipped bits", flip, 200, 0.28),
    Attack("other damages", hurt, 100, 0.15),
)
