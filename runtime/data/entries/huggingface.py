"""``entry:huggingface(path=./folder, split=train):field``: a dataset of Hugging Face's ``datasets`` (extra
``huggingface``)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from dslc.base.errors import EnvironmentFault
from dslc.base.version import install_extra

_OLDEST: Final = 4  # the first version that runs no code of a dataset's repository
_SAVED: Final = ("state.json", "dataset_dict.json")  # of a folder written by ``save_to_disk``


def load(path: str, split: str | None = None, streaming: bool = False, **options: Any) -> Any:
    """A folder written by ``save_to_disk``, else what ``datasets.load_dataset(path, split=split, **options)`` gives:
    local files (``path=csv, data_files=./x.csv``), a dataset in the cache, or one of the hub. ``streaming``: iterate,
    without a copy in the cache of ``datasets``. Raises EnvironmentFault R205."""
    datasets = _library()
    if any(Path(path, name).is_file() for name in _SAVED):
        if options or streaming:
            raise ValueError("a saved dataset takes `path` and `split` alone")
        found = datasets.load_from_disk(path)
        if isinstance(found, dict):
            _require_split(found, split)
            found = found[split]
        elif split is not None:
            raise ValueError("the folder holds a single dataset; remove `split`")
    else:
        if split is None:
            raise ValueError("name a split: `split=train`")
        found = datasets.load_dataset(path, split=split, streaming=streaming, **options)
    return Stream(found) if streaming else Rows(found)


def _require_split(found: Any, split: str | None) -> None:
    if split not in found:
        raise ValueError(f"name one of its splits: {', '.join(f'split={name}' for name in found)}"[:200])


class Stream:
    """The rows of a dataset in order. Pictures stay encoded, so that dslc decodes them as those of folders."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = _undecoded(dataset)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._dataset)

    @property
    def column_names(self) -> Sequence[str] | None:
        found: Sequence[str] | None = self._dataset.column_names
        return found

    def select_columns(self, names: list[str]) -> Any:
        return type(self)(self._dataset.select_columns(names))

    def class_names(self, field: str) -> Sequence[str] | None:
        features = self._dataset.features
        found: Sequence[str] | None = getattr((features or {}).get(field), "names", None)
        return found


class Rows(Stream):
    """The rows of a dataset by number."""

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, row: int) -> Any:
        return self._dataset[row]


def _undecoded(dataset: Any) -> Any:
    """The dataset with encoded pictures."""
    datasets = _library()
    for name, feature in (dataset.features or {}).items():
        if isinstance(feature, datasets.Image) and feature.decode:
            dataset = dataset.cast_column(name, datasets.Image(decode=False))
    return dataset


def _library() -> Any:
    try:
        import datasets
    except ImportError as error:
        help = install_extra("huggingface")
        raise EnvironmentFault("R205", "this needs datasets", place="entry:huggingface", help=help) from error
    major = re.match(r"[0-9]+", datasets.__version__)
    if major is None or int(major[0]) < _OLDEST:
        cause = f"datasets {datasets.__version__} is too old: versions before {_OLDEST} can run code of a dataset"
        raise EnvironmentFault("R205", cause, place="entry:huggingface", help=install_extra("huggingface"))
    return datasets
