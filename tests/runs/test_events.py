"""TensorBoard's events, read back as TensorBoard reads them: records of length, checksum, event, checksum."""

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.runs import count
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData

from purejax_sc.config import NetworkConfig, load
from purejax_sc.runs import events

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b550000000a49444154789c6360000000020001485dafa40000"
    "000049454e44ae426082"
)  # a PNG of one black pixel


def read(out: Path) -> Iterator[Event]:
    for path in sorted(out.glob("events.out.tfevents.*")):
        data = path.read_bytes()
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            yield Event.FromString(data[12 : 12 + length])
            data = data[16 + length :]


def values(out: Path) -> dict[str, object]:
    """The last value of every tag."""
    return {value.tag: value for event in read(out) for value in event.summary.value}


@pytest.mark.parametrize(
    ("name", "tag"),
    [
        ("episode_return", "episodes/episode_return"),
        ("result_earlier", "episodes/result_earlier"),
        ("loss", "losses/loss"),
        ("loss_sc", "losses/loss_sc"),
        ("value_error_3", "values/value_error_3"),
        ("root_gap_1", "values/root_gap_1"),
        ("sc_error_1", "self-consistency/sc_error_1"),
        ("kl_cmpo", "policy/kl_cmpo"),
        ("grad_norm", "gradients/grad_norm"),
        ("something", "other/something"),
    ],
)
def test_metrics_are_shown_in_groups(name, tag) -> None:
    assert events.tag(name) == tag


def test_a_run_has_its_numbers_its_settings_and_its_curves(tmp_path) -> None:
    count(tmp_path / "run", 2, ["hyper.learning_rate=1e-4"])
    found = values(tmp_path / "run")
    assert {"episodes/episode_return", "seeds/episode_return_0", "seeds/episode_return_1"} <= set(found)
    plugin = found["_hparams_/session_start_info"].metadata.plugin_data.content
    settings = HParamsPluginData.FromString(plugin).session_start_info.hparams
    assert settings["hyper.learning_rate"].number_value == pytest.approx(1e-4)
    assert settings["sc.update"].string_value == "direct"  # always there
    assert "sc.include_last" not in settings  # at its default
    assert found["curves"].image.encoded_image_string == (tmp_path / "run" / "curves.png").read_bytes()


def test_a_setting_that_has_no_default_is_shown(tmp_path) -> None:
    class Plain(NetworkConfig):  # the options of a user's own kind
        kind: str
        units: int = 3

    config = load("smoke").model_copy(update={"network": Plain(kind="plain")})
    events.Events(tmp_path, 0, config).close()
    plugin = values(tmp_path)["_hparams_/session_start_info"].metadata.plugin_data.content
    settings = HParamsPluginData.FromString(plugin).session_start_info.hparams
    assert settings["network.kind"].string_value == "plain"
    assert "network.units" not in settings


def test_a_film_is_added_to_a_run_that_is_over_and_hides_nothing(tmp_path) -> None:
    assert not events.are_in(tmp_path)
    first = events.Events(tmp_path, 0)
    first.add({"losses/loss": 1.0}, 100)
    first.close()
    assert events.are_in(tmp_path)
    events.show(tmp_path, "episode", PIXEL, 100)
    assert values(tmp_path)["episode"].image.width == 1
    starts = [event.step for event in read(tmp_path) if event.HasField("session_log")]
    assert starts == [0, 101]  # what was written from there on is hidden
