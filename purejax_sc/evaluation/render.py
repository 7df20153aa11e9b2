"""Pictures of episodes: observations to colours, colours to a GIF or a PNG."""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from PIL import Image

from purejax_sc.results.files import RunError, check_new
from purejax_sc.types import EnvSpec

Drawer = Callable[[np.ndarray], np.ndarray]  # observations [T, *obs_shape] -> uint8 [T, height, width, 3]

MAX_STEPS = 2_500  # of an episode that is drawn: minutes of GIF
FRAME_MS, LAST_FRAME_MS = 80, 1000
GIF_SIDE, STRIP_SIDE = 240, 160  # pixels of a frame's longer side, as nearly as whole cells allow
STRIP_FRAMES, STRIP_COLUMNS, STRIP_GAP = 20, 5, 4  # the PNG's frames, frames per row, and pixels between them
BACKGROUND = 32  # grey
# Ten colours that are easily told apart; the eleventh channel has the first one's again.
PALETTE = np.array([[round(255 * x) for x in colour] for colour in colormaps["tab10"].colors], np.uint8)  # type: ignore[attr-defined]


def make_drawer(name: str, spec: EnvSpec) -> Drawer:
    """Return the drawer of the environment `name`. Raises RunError if its observations are no picture."""
    if name == "jumanji/Sokoban":
        return draw_sokoban
    if name.startswith("atari/"):
        return lambda frames: np.broadcast_to(frames, (*frames.shape[:3], 3))  # grey is as much red, green and blue
    if spec.two_player and len(spec.obs_shape) == 3 and np.issubdtype(spec.obs_dtype, np.bool_):
        return draw_board
    if len(spec.obs_shape) in (2, 3) and min(spec.obs_shape[:2]) > 1:
        return draw_channels
    raise RunError(
        f"cannot draw {name}: its observations, of shape {list(spec.obs_shape)}, are no picture; leave out --render"
    )


def check_path(path: Path) -> None:
    """Raise RunError unless `encode` knows the format that the file's name asks for, and the file can be made."""
    if path.suffix.lower() not in (".gif", ".png"):
        raise RunError(f"cannot draw {path.name!r}: let --render end in .gif (a film) or .png (one picture)")
    check_new(path, "--render")


def draw_channels(frames: np.ndarray) -> np.ndarray:
    """Draw grids [T, H, W] or [T, H, W, C]: a cell has the colour of its first channel above 0.

    MinAtar's first channel is the player; channels of directions come later and stay hidden.
    """
    active = frames.reshape(*frames.shape[:3], -1) > 0
    colours = PALETTE[np.argmax(active, axis=-1) % len(PALETTE)]
    return np.where(active.any(axis=-1, keepdims=True), colours, np.uint8(BACKGROUND))


def draw_sokoban(frames: np.ndarray) -> np.ndarray:
    """Draw planes [T, H, W, 7] of a level or of a part of it; pictures stay as they are."""
    if frames.dtype == np.uint8:
        return frames
    from purejax_sc.envs import sokoban  # which imports Jumanji

    return np.asarray(sokoban.render(np.argmax(frames, axis=-1)))


def draw_board(frames: np.ndarray) -> np.ndarray:
    """Draw planes [T, H, W, C] of a game from its start; the first two are the mover's and the other side's pieces.

    The side that moved first has the dark pieces, as in Go.
    """
    first_to_move = (np.arange(len(frames)) % 2 == 0)[:, None, None]
    own, other = frames[..., 0], frames[..., 1]
    dark, light = np.where(first_to_move, own, other), np.where(first_to_move, other, own)
    distance = np.hypot(*np.mgrid[-7.5:8, -7.5:8])  # of the pixels of a cell of 16x16 from its middle
    line = np.asarray(np.abs(np.mgrid[-7.5:8, -7.5:8]).min(axis=0) < 1)
    empty = np.where(line[..., None], (90, 70, 40), (220, 180, 110)).astype(np.uint8)
    tiles = np.stack([np.where((distance < 7)[..., None], np.uint8(grey), empty) for grey in (20, 240)] + [empty])
    codes = np.where(dark, 0, np.where(light, 1, 2))
    num, height, width = codes.shape
    return tiles[codes].swapaxes(2, 3).reshape(num, 16 * height, 16 * width, 3)


def encode(frames: np.ndarray, suffix: str) -> bytes:
    """Encode pictures uint8 [T, H, W, 3] as a GIF of all of them, or as a PNG of `STRIP_FRAMES` at most."""
    buffer = io.BytesIO()
    if suffix.lower() == ".gif":
        first, *rest = (Image.fromarray(frame) for frame in _enlarged(frames, GIF_SIDE))
        times = [FRAME_MS] * len(rest) + [LAST_FRAME_MS]
        first.save(buffer, format="GIF", save_all=True, append_images=rest, duration=times, loop=0)
    else:
        Image.fromarray(strip(frames)).save(buffer, format="PNG")
    return buffer.getvalue()


def strip(frames: np.ndarray) -> np.ndarray:
    """Tile evenly chosen frames uint8 [T, H, W, 3] line by line on white: one picture [height, width, 3]."""
    chosen = np.unique(np.linspace(0, len(frames) - 1, STRIP_FRAMES).round().astype(int))
    tiles = _enlarged(frames[chosen], STRIP_SIDE)
    columns = min(len(tiles), STRIP_COLUMNS)
    rows = -(-len(tiles) // columns)
    height, width = (side + STRIP_GAP for side in tiles.shape[1:3])
    picture = np.full((STRIP_GAP + rows * height, STRIP_GAP + columns * width, 3), 255, np.uint8)
    for i, tile in enumerate(tiles):
        top, left = STRIP_GAP + i // columns * height, STRIP_GAP + i % columns * width
        picture[top : top + tile.shape[0], left : left + tile.shape[1]] = tile
    return picture


def _enlarged(frames: np.ndarray, side: int) -> np.ndarray:
    """Repeat pixels a whole number of times, so that the longer side has about `side` of them."""
    scale = max(1, side // max(frames.shape[1:3]))
    return frames.repeat(scale, axis=1).repeat(scale, axis=2)
