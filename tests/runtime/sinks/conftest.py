from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sinking.fake_packages import Server, modules
from training.fake_session import YAML, write_data

from dslc.runtime.sinks import wandb


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with dslc.yaml, which logs every second step, and its data."""
    (tmp_path / "dslc.yaml").write_text(YAML.replace("epochs: 4", "epochs: 4, log_every: 2 steps"))
    write_data(tmp_path)
    return tmp_path


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Server]:
    """``installed("wandb")`` makes the package of a sink importable, and returns its server."""

    def install(name: str) -> Server:
        server = Server()
        for module, contents in modules(name, server).items():
            monkeypatch.setitem(sys.modules, module, contents)
        wandb.require_login.cache_clear()
        return server

    return install
