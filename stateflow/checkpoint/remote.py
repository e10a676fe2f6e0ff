"""Images in S3, Google Cloud Storage or HDFS, through the file systems of Apache Arrow.

S3 and Google Cloud Storage show an object when its upload is complete; a file system shows a file while it is written,
so there it is written beside and renamed. The tests hold this to the contract over Arrow's local file system, which
takes the same path as HDFS, and over a local S3 server; no HDFS and no Google Cloud Storage were at hand.

Credentials come from the environment or the machine's role, as Arrow and the clouds document it; never from the
location, which is logged.
"""

from __future__ import annotations

import posixpath
import shutil
import uuid
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

from stateflow.checkpoint.objects import ObjectInfo
from stateflow.errors import ConfigError, SetupError, install_command
from stateflow.redaction import redacted_text, shown

_RENAMING = ("hdfs", "local", "file")
"""Arrow's names of file systems in which a rename puts a whole file in its place."""
_UPLOAD_SUFFIX = ".upload"


class ArrowObjects:
    """An object store over ``pyarrow.fs``. Uploads become visible when their stream is closed."""

    def __init__(self, location: str) -> None:
        fs = _arrow()
        try:
            self._fs, self._root = fs.FileSystem.from_uri(location)
        except (ValueError, OSError) as error:
            raise ConfigError(
                f"images cannot be kept at {shown(location)}: {redacted_text(str(error))}.",
                action="check the URI, and that credentials are in the environment.",
            ) from error
        self._location = shown(location)
        self._fs_module = fs

    @property
    def location(self) -> str:
        """The URI, with stars for what should not be shown."""
        return self._location

    def put(self, name: str, source: BinaryIO) -> None:
        """Upload; a failed upload leaves no object.

        When what is uploaded cannot be read to its end, the stream is closed with what was sent: S3 then has a
        shortened object, which is deleted again.
        """
        target = posixpath.join(self._root, name)
        if self._fs.type_name in _RENAMING:
            beside = f"{target}.{uuid.uuid4().hex[:8]}{_UPLOAD_SUFFIX}"
            self._fs.create_dir(posixpath.dirname(target), recursive=True)
            try:
                self._copy(source, beside)
                self._fs.move(beside, target)
            except BaseException:
                self._delete(beside)
                raise
        else:
            try:
                self._copy(source, target)
            except BaseException:
                self.delete(name)
                raise

    def open(self, name: str) -> BinaryIO:
        """A stream of the object."""
        return cast(BinaryIO, self._fs.open_input_stream(posixpath.join(self._root, name)))

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Objects below a folder."""
        return self._files(prefix, are_uploads=False)

    def unfinished(self, prefix: str) -> Iterator[ObjectInfo]:
        """Files beside those that they are to become.

        S3 and Google Cloud Storage show none: what they have of an upload goes by the rules of the bucket.
        """
        return self._files(prefix, are_uploads=True) if self._fs.type_name in _RENAMING else iter(())

    def _files(self, prefix: str, *, are_uploads: bool) -> Iterator[ObjectInfo]:
        folder = posixpath.join(self._root, prefix)
        selector = self._fs_module.FileSelector(folder, recursive=True, allow_not_found=True)
        for info in self._fs.get_file_info(selector):
            is_file = info.type == self._fs_module.FileType.File
            if is_file and info.path.endswith(_UPLOAD_SUFFIX) is are_uploads:
                name = posixpath.relpath(info.path, self._root)
                yield ObjectInfo(name, info.size, info.mtime_ns // 1_000_000)

    def delete(self, name: str) -> None:
        """Delete the object if it is there."""
        self._delete(posixpath.join(self._root, name))

    def _delete(self, path: str) -> None:
        if self._fs.get_file_info(path).type == self._fs_module.FileType.File:
            self._fs.delete_file(path)

    def _copy(self, source: BinaryIO, path: str) -> None:
        with self._fs.open_output_stream(path) as sink:
            shutil.copyfileobj(source, sink, 8 << 20)


def _arrow() -> Any:
    try:
        from pyarrow import fs
    except ImportError as error:
        raise SetupError(
            "images in an object store need pyarrow, which is not installed.",
            action=f"{install_command('images')}, or keep images in a directory.",
        ) from error
    return fs
