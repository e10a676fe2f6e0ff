"""What all RocksDB instances of a process share, and the options of every column family."""

from __future__ import annotations

from functools import cache, cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

from rocksdict import BlockBasedOptions, Cache, DBCompressionType, Options, WriteBufferManager

from stateflow.errors import DiskFull
from stateflow.memory import MemoryShares, memory_shares

_SHARES = memory_shares()
DEFAULT_CACHE_BYTES = _SHARES.block_cache_bytes
DEFAULT_WRITE_BUFFER_BYTES = _SHARES.memtables_bytes
_FAMILY_WRITE_BUFFER_BYTES = 32 << 20
_BLOOM_BITS_PER_KEY = 10
_ARENA_BLOCK_BYTES = 4 << 10
"""In what steps a memtable grows: what one takes that holds a few rows, and is charged to the shared bound. RocksDB's
own choice is 1 MiB. With 128 KiB the memtables of 180 tasks × 4 families use the bound up, and then every write is
followed by a flush; with 4 KiB, its least, 2,500 such tasks fit, and large epochs are written as fast."""
_OPENING_THREADS = 4
"""Threads that look at the files of a family while it is opened; they are begun however few there are. With RocksDB's
own choice, 16, opening a small database takes a third more CPU time; 300 files take 17 ms with 1 to 16 of them."""
DEFAULT_DISK_RESERVE_BYTES = 64 << 20
_INFO_LOG_BYTES = 1 << 20
_OPTIONS_FILE = """[Version]
  rocksdb_version=9.0.0
  options_file_version=1.1
[DBOptions]
[CFOptions "default"]
  uncache_aggressiveness=500
  memtable_insert_with_hint_prefix_extractor=rocksdb.CappedPrefix.0
[TableOptions/BlockBasedTable "default"]
"""
_RAW_MODE = '{"raw_mode":true,"prefix_extractors":{}}'


class RocksResources:
    """One block cache and one bound on memtables, whatever the number of tasks and stores.

    Memtables are charged to ``write_buffer_bytes``; when they exceed it the fullest is flushed. Writes are
    refused while less than ``disk_reserve_bytes`` are free, so that what was written before can still be
    flushed.
    """

    def __init__(
        self,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        write_buffer_bytes: int = DEFAULT_WRITE_BUFFER_BYTES,
        disk_reserve_bytes: int = DEFAULT_DISK_RESERVE_BYTES,
    ) -> None:
        self.disk_reserve_bytes = disk_reserve_bytes
        self.cache = Cache(cache_bytes)
        self.write_buffers = WriteBufferManager(write_buffer_bytes, False)
        self._table = BlockBasedOptions()
        self._table.set_block_cache(self.cache)
        self._table.set_bloom_filter(_BLOOM_BITS_PER_KEY, False)
        self._table.set_cache_index_and_filter_blocks(True)
        self._table.set_pin_l0_filter_and_index_blocks_in_cache(True)

        self.options = _family_options(self)

    @classmethod
    def within(cls, shares: MemoryShares) -> RocksResources:
        """What the databases of one process share, in their shares of its memory."""
        return cls(shares.block_cache_bytes, shares.memtables_bytes)

    @cached_property
    def secondary_options(self) -> Options:
        """Of databases that follow another process's."""
        return _family_options(self, secondary=True)

    @property
    def table(self) -> BlockBasedOptions:
        """Options of table files: the shared cache, bloom filters."""
        return self._table


def family_options(resources: RocksResources, *, secondary: bool = False) -> Options:
    """Options for one column family (and, for the first, the database). RocksDB keeps none of them by itself."""
    return resources.secondary_options if secondary else resources.options


@cache
def file_options() -> Options:
    """Options of sorted files that are made away from a database, once in a process: many are of a few records."""
    return family_options(RocksResources())


def _family_options(resources: RocksResources, *, secondary: bool = False) -> Options:
    options = _options_without_setter()
    options.create_if_missing(not secondary)
    options.create_missing_column_families(not secondary)
    options.set_atomic_flush(True)
    options.set_paranoid_checks(True)
    options.set_write_buffer_size(_FAMILY_WRITE_BUFFER_BYTES)
    options.set_arena_block_size(_ARENA_BLOCK_BYTES)
    options.set_write_buffer_manager(resources.write_buffers)
    options.set_block_based_table_factory(resources.table)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_level_compaction_dynamic_level_bytes(True)
    options.set_max_file_opening_threads(_OPENING_THREADS)
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(_INFO_LOG_BYTES)
    options.set_stats_dump_period_sec(0)
    if secondary:
        options.set_max_open_files(-1)  # a secondary keeps files that the primary deletes readable
    return options


def _options_without_setter() -> Options:
    """RocksDB's defaults, and two that have no setter here, but can be read from a file.

    ``uncache_aggressiveness``: blocks of a file leave the cache with the file. By default they stay until others need
    the room: with each flush and compaction the cache then grows up to its bound, however little state there is.

    ``memtable_insert_with_hint_prefix_extractor``: a key is put into a memtable from where the one before it went, in
    the place of a search from the top. All keys share one such hint (a prefix of no bytes): an epoch is sorted.

    Raw mode always: otherwise keys and values would be unpickled, which runs code out of the database. Raises
    ``DiskFull`` when the folder for temporary files takes no file.
    """
    try:
        with TemporaryDirectory(prefix="stateflow-options-") as folder:
            (Path(folder) / "OPTIONS-000001").write_text(_OPTIONS_FILE, encoding="ascii")
            (Path(folder) / "rocksdict-config.json").write_text(_RAW_MODE, encoding="ascii")
            _, families = Options.load_latest(folder, ignore_unknown_options=True)
    except OSError as error:
        raise DiskFull(
            f"no temporary file can be written: {error.strerror or error}.",
            action="free space in the folder for temporary files, or name another one with TMPDIR.",
        ) from error
    options: Options = families["default"]
    return options
