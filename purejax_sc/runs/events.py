"""TensorBoard's events, written by the thread that trains: an error while writing is met where it can be told.

Weights & Biases reads the same file.
"""

import io
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from PIL import Image
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.summary import hparams, scalar

from purejax_sc.config import Config, Hyper
from purejax_sc.config.files import flat, to_tree
from purejax_sc.config.sections import Section
from purejax_sc.results.files import unwritable

FLUSH_SECONDS = 10.0
RETURN = "episodes/episode_return"  # by which the view of settings compares runs
# What a metric's name begins with, and the group in which TensorBoard shows it.
GROUPS = (
    (("episode", "result"), "episodes"),
    (("loss",), "losses"),
    (("value_", "root_gap", "sigma"), "values"),
    (("sc_",), "self-consistency"),
    (("entropy", "kl_", "adv_clipped", "rho"), "policy"),
    (("grad_norm", "learning_rate"), "gradients"),
)
ALWAYS = ("env", "seed", "sc.update", "hyper.learning_rate")  # shown by that view also where they are at their defaults


def tag(name: str) -> str:
    """A metric's name behind that of its group."""
    group = next((group for begins, group in GROUPS if name.startswith(begins)), "other")
    return f"{group}/{name}"


class Events:
    """One file of events. Raises RunError for what cannot be written; after that nothing more is."""

    def __init__(self, out: Path, step: int, config: Config | None = None, suffix: str = "") -> None:
        """A new file.

        step:   what an earlier part of the run wrote from there on is hidden, for it comes again.
        config: its settings are noted, for the view that compares runs by them.
        suffix: of the file's name, which else tells only the second.
        """
        self._out, self._flushed = out, time.perf_counter()
        try:
            self._writer = EventsWriter(str(out / "events"), suffix)
        except OSError as error:
            raise unwritable(out, error) from None
        self._add(Event(step=step, file_version="brain.Event:2"))
        self._add(Event(step=step, session_log=SessionLog(status=SessionLog.START)))
        for summary in () if config is None else hparams(_settings(config), {RETURN: 0.0}):
            self._add(Event(step=step, wall_time=time.time(), summary=summary))

    def add(self, scalars: Mapping[str, float], step: int) -> None:
        for name, value in scalars.items():
            self._add(Event(step=step, wall_time=time.time(), summary=scalar(name, value)))
        if time.perf_counter() - self._flushed > FLUSH_SECONDS:
            self._try(self._writer.flush)
            self._flushed = time.perf_counter()

    def add_picture(self, name: str, data: bytes, step: int) -> None:
        """A PNG, or a film as GIF."""
        with Image.open(io.BytesIO(data)) as image:
            width, height = image.size
        picture = Summary.Image(height=height, width=width, colorspace=4, encoded_image_string=data)
        value = Summary.Value(tag=name, image=picture)
        self._add(Event(step=step, wall_time=time.time(), summary=Summary(value=[value])))

    def close(self) -> None:
        self._try(self._writer.close)

    def _add(self, event: Event) -> None:
        self._try(lambda: self._writer.write_event(event))

    def _try(self, write: Callable[[], object]) -> None:
        try:
            write()
        except OSError as error:
            with suppress(OSError):
                self._writer.close()  # else the buffer is written once more when it is collected
            raise unwritable(self._out, error) from None


def are_in(out: Path) -> bool:
    """Whether a directory has events, as that of a run has and that of an exported agent has not."""
    return any(out.glob("events.out.tfevents.*"))


def show(out: Path, name: str, data: bytes, step: int) -> None:
    """Add a picture to the events of a run that is over. Raises RunError."""
    # nothing comes again: no event has such a step
    events = Events(out, step + 1, suffix=f".{name}")
    events.add_picture(name, data, step)
    events.close()


def _settings(config: Config) -> dict[str, bool | float | str]:
    """The settings that are not at their defaults, by their dotted names: numbers, switches and words."""
    sections = {name: section for name, section in config if isinstance(section, Section | Hyper)}
    plain = {f"{name}.{leaf}" for name, section in sections.items() for leaf in _unchanged(section)}
    chosen = {name: x for name, x in flat(to_tree(config)).items() if name not in plain or name in ALWAYS}
    return {name: x if isinstance(x, bool | int | float) else str(x) for name, x in chosen.items()}


def _unchanged(section: Section | Hyper) -> list[str]:
    """The fields of a section that are at their defaults."""
    if isinstance(section, Hyper):
        return [name for name, value in section._asdict().items() if value == Hyper._field_defaults[name]]
    return [name for name, field in type(section).model_fields.items() if getattr(section, name) == field.default]
