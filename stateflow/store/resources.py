"""What all RocksDB instances of a process share, and the options of every column family."""

from __future__ import annotations

from rocksdict import BlockBasedOptions, Cache, DBCompressionType, Options, WriteBufferManager

DEFAULT_CACHE_BYTES = 128 << 20
DEFAULT_WRITE_BUFFER_BYTES = 64 << 20
_FAMILY_WRITE_BUFFER_BYTES = 32 << 20
_BLOOM_BITS_PER_KEY = 10
_ARENA_BLOCK_BYTES = 4 << 10
"""In what steps a memtable grows: what one takes that holds a few rows, and is charged to the shared bound. RocksDB's
own choice is 1 MiB. With 128 KiB the memtables of 180 tasks × 4 families use the bound up, and then every write is
followed by a flush; with 4 KiB, its least, 2,500 such tasks fit, and large epochs are written as fast."""
DEFAULT_DISK_RESERVE_BYTES = 64 << 20
_INFO_LOG_BYTES = 1 << 20


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

    @property
    def table(self) -> BlockBasedOptions:
        """Options of table files: the shared cache, bloom filters."""
        return self._table


def family_options(resources: RocksResources, *, secondary: bool = False) -> Options:
    """Options for one column family (and, for the first, the database). RocksDB keeps none of them by itself.

    Raw mode always: otherwise keys and values would be unpickled, which runs code out of the database.
    """
    options = Options(raw_mode=True)
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
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(_INFO_LOG_BYTES)
    options.set_stats_dump_period_sec(0)
    if secondary:
        options.set_max_open_files(-1)  # a secondary keeps files that the primary deletes readable
    return options
