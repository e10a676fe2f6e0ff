"""Images of tasks in an object store: publish, find, verify, fetch, collect garbage.

Objects below ``<app>/g<generation>/<task>/``: ``manifests/<created_ms>.json``; ``files/<sha256>`` for contents, which
images share, or ``full/<created_ms>/<sha256>`` for those of an image that shares none; ``safe/<created_ms>``.
Contents are named by their hash, so an upload of the next image sends only what is new, and a manifest is written
last: an image whose manifest is there is whole. Garbage collection starts from the manifests that stay.

An image is *safe* once its contents were read back and compared, each at least once since it was sent: its mark holds
the hash of its manifest. Only a safe image may stand for a log that is deleted before it.
"""

from __future__ import annotations

import hashlib
import io
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stateflow.checkpoint.manifest import (
    MANIFEST_BYTES_MAX,
    ImageFile,
    ImageStore,
    Manifest,
    UploadMode,
    is_of_another_version,
)
from stateflow.checkpoint.objects import UNFINISHED_MS, ObjectStore, read_at_most, sync_directory
from stateflow.checkpoint.transfers import Cancelled, check_wanted, copy_hashed, never, sha256_of
from stateflow.clock import Clock
from stateflow.errors import StateCorrupt
from stateflow.failpoints import reach
from stateflow.record import is_topic_name

_LOG = logging.getLogger(__name__)

_MANIFEST_NAME = re.compile(r"/\d{20}\.json$")


@dataclass(frozen=True, slots=True)
class Published:
    """An image that is safe, and what publishing it took."""

    manifest: Manifest
    name: str
    files_uploaded_total: int
    bytes_uploaded_total: int


@dataclass(frozen=True, slots=True)
class Collected:
    """What garbage collection removed, or would remove."""

    manifests: tuple[str, ...]
    files: tuple[str, ...]
    freed_bytes: int
    refused: tuple[StateCorrupt, ...] = ()
    """Why images that stay cannot be read: as nobody knows what they name, no contents were removed."""


class TaskImages:
    """The images of one task of one generation."""

    def __init__(self, objects: ObjectStore, app: str, generation: int, task: str, clock: Clock) -> None:
        self._objects = objects
        self._clock = clock
        self._identity = (app, generation, task)
        if not (is_topic_name(app) and is_topic_name(task)):  # they become names of objects
            raise StateCorrupt(
                f"{app!r} or {task!r} cannot be the name of an application and of a task of it.",
                action="something else wrote to the control topic: see `stateflow repair`.",
            )
        self._folder = f"{app}/g{generation}/{task}"

    @property
    def location(self) -> str:
        """The place of all images, for people."""
        return self._objects.location

    def publish(
        self,
        checkpoint: Path,
        stores: Mapping[str, ImageStore],
        inputs: Mapping[str, int],
        cancelled: Cancelled = never,
        mode: UploadMode = "delta",
        savepoint: str | None = None,
    ) -> Published:
        """Upload a checkpoint directory and publish it. A crash anywhere before the end leaves no image.

        One for a ``savepoint`` does not age and go, but stays until that is deleted.

        Raises ``Interrupted`` soon after ``cancelled`` turns true: no further object is begun then.
        """
        app, generation, task = self._identity
        created_ms = self._clock.now_ms()
        there = self._kept_contents() if mode == "delta" else {}
        files, sent, sent_bytes = [], 0, 0
        for path in sorted(checkpoint.iterdir()):
            file = ImageFile(name=path.name, size_bytes=path.stat().st_size, sha256=sha256_of(path))
            files.append(file)
            name = self._content(file, mode, created_ms)
            if there.get(name) != file.size_bytes:
                check_wanted(cancelled)
                reach("image.before_file")
                with path.open("rb") as source:
                    self._objects.put(name, source)
                reach("image.after_file")
                there[name] = file.size_bytes
                sent, sent_bytes = sent + 1, sent_bytes + file.size_bytes
        manifest = Manifest(
            app=app,
            generation=generation,
            task=task,
            created_ms=created_ms,
            stores=dict(stores),
            inputs=dict(inputs),
            files=tuple(files),
            mode=mode,
        )
        encoded = manifest.encode()
        name = f"{self._folder}/manifests/{manifest.created_ms:020d}.json"
        if savepoint is not None:
            name = self.savepoint_name(savepoint)
        Manifest.decode(encoded, name)  # what we could not read back must not be published
        check_wanted(cancelled)
        reach("image.before_manifest")
        self._objects.put(name, io.BytesIO(encoded))
        reach("image.after_manifest")
        return Published(manifest, name, sent, sent_bytes)

    def names(self) -> list[str]:
        """Names of the published manifests, newest first."""
        found = self._objects.list(f"{self._folder}/manifests")
        return sorted((info.name for info in found if _MANIFEST_NAME.search(info.name)), reverse=True)

    def savepoint_name(self, savepoint: str) -> str:
        """Name of the manifest that this task has in a savepoint (``<name>.<number>``)."""
        return f"{self._folder}/savepoints/{savepoint}.json"

    def savepoint_names(self) -> list[str]:
        """Names of the manifests that savepoints hold of this task."""
        found = self._objects.list(f"{self._folder}/savepoints")
        return sorted(info.name for info in found if info.name.endswith(".json"))

    def created_ms(self, name: str) -> int:
        """When an image was published, by its name."""
        return int(name.rpartition("/")[2].removesuffix(".json"))

    def load(self, name: str) -> Manifest:
        """One manifest, checked. Raises ``StateCorrupt``, also when it is of another task."""
        manifest = Manifest.decode(self._read(name), name)
        if (manifest.app, manifest.generation, manifest.task) != self._identity:
            raise StateCorrupt(
                f"the image {name} belongs to {manifest.app} g{manifest.generation} {manifest.task}.",
                action="it was copied to the wrong place: remove it there with `stateflow checkpoint gc --damaged`.",
                manifest=name,
            )
        return manifest

    def verify(self, manifest: Manifest) -> list[str]:
        """What is wrong with an image, file by file, without restoring it; empty when it is whole."""
        return self._problems(manifest, frozenset(), never)

    def confirm(self, name: str, cancelled: Cancelled = never) -> list[str]:
        """Make sure that an image is whole, and mark it as safe. Returns what is wrong with it: nothing, or no mark.

        Contents that another safe image names were read back for that one; here only their sizes are looked at.
        Raises ``StateCorrupt`` for a manifest that cannot be read, ``FileNotFoundError``, and ``Interrupted``.
        """
        manifest = self.load(name)
        safe = {other: self.load(other) for other in self.safe_names() if other != name}
        proven = {self._place(held, file) for held in safe.values() for file in held.files}
        problems = self._problems(manifest, proven, cancelled)
        if not problems:
            reach("trim.before_mark")
            self._objects.put(self._mark(name), io.BytesIO(self._digest(name)))
        return problems

    def safe_names(self) -> list[str]:
        """Names of the images that are marked as safe and have all their contents, newest first."""
        marks = {info.name for info in self._objects.list(f"{self._folder}/safe")}
        marked = [name for name in self.names() if self._mark(name) in marks]
        sizes = self._contents() if marked else {}
        return [name for name in marked if self._is_safe(name, sizes)]

    def absent(self, manifest: Manifest) -> list[str]:
        """Files of an image that are not there, or of another size; a look at names and sizes only."""
        found = self._contents()
        return [
            file.name for file in manifest.files if found.get(self._place(manifest, file)) != file.size_bytes
        ]

    def forget_savepoint(self, savepoint: str, *, grace_ms: int) -> Collected:
        """Remove what a savepoint alone holds of this task; what is younger than ``grace_ms`` is left to ``collect``.

        Repeated, it goes on where it was interrupted.
        """
        self._objects.delete(self.savepoint_name(savepoint))
        return self.collect(keep=max(1, len(self.names())), grace_ms=grace_ms)

    def fetch(self, manifest: Manifest, directory: Path, cancelled: Cancelled = never) -> None:
        """Install an image as ``directory``, which must not exist: whole and verified, or not at all.

        Raises ``StateCorrupt`` for a damaged file, ``FileNotFoundError`` for a missing one, and ``Interrupted`` soon
        after ``cancelled`` turns true.
        """
        assert not directory.exists(), f"{directory} exists already"
        directory.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
        try:
            for file in manifest.files:
                self._fetch_file(manifest, file, beside / file.name, cancelled)
                reach("install.after_file")
            reach("install.before_rename")
            sync_directory(beside)
            beside.rename(directory)
            sync_directory(directory.parent)
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)
            raise

    def collect(
        self,
        *,
        keep: int,
        grace_ms: int,
        protected: Collection[str] = (),
        damaged: bool = False,
        dry_run: bool = False,
    ) -> Collected:
        """Remove all but the newest ``keep`` images and those ``protected``, and contents that none of these names,
        nor any savepoint.

        Contents younger than ``grace_ms`` stay: an upload under way has not published its manifest yet. What uploads
        that were killed have left beside goes with them after a day (``UNFINISHED_MS``), whatever the grace. To keep
        none is right only for a task that begins with its changelog, which is then whole.

        An image whose manifest cannot be read counts as none. Where it is older than those kept it goes with the
        others, else only if ``damaged`` says so, and never if another version has written it.
        """
        names = self.names()
        live, stay, refused = self._newest(names, keep)
        if damaged:
            refused = {name: error for name, error in refused.items() if is_of_another_version(error)}
        gone = [name for name in names if name not in stay and name not in protected and name not in refused]
        others = [
            *(name for name in names if name in protected and name not in stay),
            *self.savepoint_names(),
        ]
        for name in others:
            live |= self._contents_of(name, refused)
        now_ms = self._clock.now_ms()
        dead = [
            info
            for folder in ("files", "full")
            for info in self._objects.list(f"{self._folder}/{folder}")
            if not refused and info.name not in live and info.modified_ms < now_ms - grace_ms
        ]
        left = self._objects.unfinished(self._folder)
        dead += [info for info in left if info.modified_ms < now_ms - UNFINISHED_MS]
        if not dry_run:
            self._remove(names, gone, [info.name for info in dead])
        freed_bytes = sum(info.size_bytes for info in dead)
        names_dead = tuple(info.name for info in dead)
        return Collected(tuple(gone), names_dead, freed_bytes, tuple(refused.values()))

    # --- inside ---------------------------------------------------------------------------------------

    def _remove(self, seen: Sequence[str], manifests: Sequence[str], contents: Sequence[str]) -> None:
        """Manifests first: one that names missing contents must not be found; its mark before it."""
        reach("collect.before_manifests")
        for name in manifests:
            self._objects.delete(self._mark(name))
            self._objects.delete(name)
            reach("collect.after_manifest")
        reach("collect.before_files")
        since, refused = set[str](), dict[str, StateCorrupt]()
        for name in self.names():
            since |= set() if name in seen else self._contents_of(name, refused)
        for name in contents:
            if not refused and name not in since:  # sent again by an image that was published meanwhile
                self._objects.delete(name)
                reach("collect.after_file")

    def _newest(self, names: Sequence[str], keep: int) -> tuple[set[str], set[str], dict[str, StateCorrupt]]:
        """Contents and names of the newest ``keep`` images that can be read, and why those between them cannot be."""
        live, found = set[str](), set[str]()
        refused: dict[str, StateCorrupt] = {}
        for name in names:
            if len(found) == keep:
                break
            live |= self._contents_of(name, refused)
            if name not in refused:
                found.add(name)
        return live, found, refused

    def _contents_of(self, name: str, refused: dict[str, StateCorrupt]) -> set[str]:
        """Contents that an image names; none of one that cannot be read, which is noted."""
        try:
            return self._named([name])
        except StateCorrupt as error:
            refused[name] = error
            return set()

    def _named(self, names: Iterable[str]) -> set[str]:
        """Contents that images name."""
        manifests = [self.load(name) for name in names]
        return {self._place(manifest, file) for manifest in manifests for file in manifest.files}

    def _kept_contents(self) -> dict[str, int]:
        """Contents that need not be sent again, with their sizes: those that the newest image names.

        Others may be there, but no manifest keeps a collection that runs meanwhile from removing them.
        """
        named: set[str] = set()
        for newest in self.names()[:1]:
            try:
                named = self._named([newest])
            except StateCorrupt as error:
                _LOG.warning("Every file is sent, as the newest image cannot be read: %s", error)
        return {name: size_bytes for name, size_bytes in self._contents().items() if name in named}

    def _contents(self) -> dict[str, int]:
        folders = ("files", "full")
        found = (info for folder in folders for info in self._objects.list(f"{self._folder}/{folder}"))
        return {info.name: info.size_bytes for info in found}

    def _is_safe(self, name: str, sizes: Mapping[str, int]) -> bool:
        try:
            if self._read(self._mark(name)) != self._digest(name):
                return False
            manifest = self.load(name)
        except (FileNotFoundError, StateCorrupt) as error:
            _LOG.warning("The image %s is not safe: %s", name, error)
            return False
        return all(sizes.get(self._place(manifest, file)) == file.size_bytes for file in manifest.files)

    def _problems(self, manifest: Manifest, proven: Collection[str], cancelled: Cancelled) -> list[str]:
        problems = []
        for file in manifest.files:
            if self._place(manifest, file) in proven:
                continue
            try:
                with self._objects.open(self._place(manifest, file)) as source:
                    size_bytes, digest = copy_hashed(source, None, file.size_bytes, cancelled)
            except FileNotFoundError:
                problems.append(f"{file.name}: missing")
                continue
            if size_bytes != file.size_bytes or digest != file.sha256:
                problems.append(f"{file.name}: damaged")
        return problems

    def _digest(self, name: str) -> bytes:
        return hashlib.sha256(self._read(name)).hexdigest().encode()

    def _read(self, name: str) -> bytes:
        """A manifest or a mark, or somewhat more than any has: what is larger is never read whole."""
        return read_at_most(self._objects, name, MANIFEST_BYTES_MAX)

    def _mark(self, name: str) -> str:
        return f"{self._folder}/safe/{self.created_ms(name):020d}"

    def _place(self, manifest: Manifest, file: ImageFile) -> str:
        return self._content(file, manifest.mode, manifest.created_ms)

    def _content(self, file: ImageFile, mode: UploadMode, created_ms: int) -> str:
        folder = "files" if mode == "delta" else f"full/{created_ms:020d}"
        return f"{self._folder}/{folder}/{file.sha256}"

    def _fetch_file(self, manifest: Manifest, file: ImageFile, target: Path, cancelled: Cancelled) -> None:
        with self._objects.open(self._place(manifest, file)) as source, target.open("xb") as sink:
            size_bytes, digest = copy_hashed(source, sink, file.size_bytes, cancelled)
            sink.flush()
            os.fsync(sink.fileno())
        if size_bytes != file.size_bytes or digest != file.sha256:
            raise StateCorrupt(
                f"{file.name} of an image in {self._objects.location} is damaged.",
                action="restore from an older image or from the changelog; verify the other images too.",
                file=file.name,
            )
