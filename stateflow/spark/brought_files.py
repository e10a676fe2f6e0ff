"""Files that Spark brings to executors: copies that stay as they are while tasks may ask for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext


@contextmanager
def brought_files(context: SparkContext, files: Mapping[str, bytes]) -> Iterator[None]:
    """Have Spark bring files to executors under these names, for tasks that run while the scope lasts.

    Spark reads a file when an executor asks for it: by then the original may be changed, or gone.
    """
    with TemporaryDirectory(prefix="stateflow-shipped-") as folder:
        for name, content in files.items():
            copy = Path(folder) / name
            copy.write_bytes(content)
            context.addFile(str(copy))
        yield
