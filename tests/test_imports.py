"""Imports run one way: each layer may import those below it, siblings meet only through ``types``."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import hostbot

SRC = Path(hostbot.__file__).parent
LAYERS = [
    {"types"},
    {"config"},
    {"geometry", "flow", "orthogonal", "video"},
    {"align", "couple"},
    {"model", "data", "memory", "sim"},
    {"policy"},
    {"train", "bench", "serve", "studio"},
    {"presets"},
    {"cli"},
]
LATE = {"import_module", "__import__"}
LEVEL = {name: level for level, layer in enumerate(LAYERS) for name in layer}


def part_of(path):
    return path.relative_to(SRC).parts[0].removesuffix(".py")


def imported_parts(source):
    """First component below ``hostbot`` of everything a module imports, wherever and however it does."""
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
            assert "hostbot" not in names, "import a part of hostbot, not hostbot itself"
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "hostbot's modules import by their full names"
            names = (
                [f"hostbot.{alias.name}" for alias in node.names]
                if node.module == "hostbot"
                else [node.module]
            )
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in LATE:
            names = [
                a.value for a in node.args[:1] if isinstance(a, ast.Constant) and isinstance(a.value, str)
            ]
        for name in names:
            parts = name.split(".")
            if parts[0] == "hostbot" and len(parts) > 1 and not parts[1].startswith("__"):
                yield parts[1]


def upward_imports(part, source):
    return [other for other in imported_parts(source) if other != part and LEVEL[other] >= LEVEL[part]]


MODULES = sorted(p for p in SRC.rglob("*.py") if part_of(p) not in ("__init__", "__main__"))


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SRC)))
def test_no_module_imports_upward_or_sideways(path):
    assert part_of(path) in LEVEL, "a new top-level part needs a place in LAYERS"
    assert upward_imports(part_of(path), path.read_text()) == []


@pytest.mark.parametrize(
    ("part", "source"),
    [
        ("geometry", "from hostbot.data.store import open_dataset"),
        ("types", "import hostbot.geometry"),
        ("video", "from hostbot import flow"),
        ("data", "def f():\n    from hostbot.model.host import Host"),
        ("sim", "from hostbot.presets import tiny"),
        ("geometry", "importlib.import_module('hostbot.data.store')"),
        ("geometry", "import_module('hostbot.data.store')"),
        ("types", "__import__('hostbot.video')"),
    ],
)
def test_the_check_sees_upward_and_sideways_imports(part, source):
    assert upward_imports(part, source)


@pytest.mark.parametrize("source", ["import hostbot", "from . import data", "from ..data import store"])
def test_the_check_refuses_ways_around_it(source):
    with pytest.raises(AssertionError):
        list(imported_parts(source))


def test_the_package_itself_and_its_nouns_import_nothing_heavy():
    script = "import sys, hostbot.types; sys.exit(any(m in sys.modules for m in ('torch', 'av', 'pyarrow', 'mujoco')))"
    assert subprocess.run([sys.executable, "-c", script], timeout=60).returncode == 0
    assert list(imported_parts((SRC / "__init__.py").read_text())) == []


def test_the_check_lets_downward_imports_pass():
    assert (
        upward_imports(
            "data", "from hostbot.video import VideoReader\nimport hostbot.data.clean\nimport numpy"
        )
        == []
    )


def test_the_simulator_never_imports_torch():
    for path in (SRC / "sim").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.split(".")[0] == "torch" for name in names), path


def test_no_benchmark_hides_a_package_that_others_look_for():
    """A script's folder comes first on the path, and transformers looks whether there is a package ``kernels``."""
    scripts = str(SRC.parents[1] / "benchmarks")
    code = f"import sys; sys.path.insert(0, {scripts!r}); from diffusers import AutoencoderKLWan"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-800:]
