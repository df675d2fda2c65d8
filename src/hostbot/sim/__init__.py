"""The bench: a table, two arms, a human hand and 279 tasks in MuJoCo. Never imports torch.

MuJoCo chooses how to draw when it is first imported, so the choice is made here: without a word from the user
(``MUJOCO_GL``), Linux draws without a display, by EGL where it loads and by OSMesa where that does.
"""

import ctypes
import os
import sys


def _headless_backend() -> str | None:
    for backend, library in (
        ("egl", "libEGL.so.1"),
        ("osmesa", "libOSMesa.so.8"),
        ("osmesa", "libOSMesa.so"),
    ):
        try:
            ctypes.CDLL(library)
        except OSError:
            continue
        return backend
    return None


if sys.platform == "linux" and "MUJOCO_GL" not in os.environ and (_backend := _headless_backend()):
    os.environ["MUJOCO_GL"] = _backend
