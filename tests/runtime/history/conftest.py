from __future__ import annotations

from pathlib import Path

import pytest
from training.fake_session import YAML, write_data


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with dslc.yaml and its data."""
    (tmp_path / "dslc.yaml").write_text(YAML)
    write_data(tmp_path)
    return tmp_path
