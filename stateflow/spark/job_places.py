"""Places that a job of Spark is to write: those on this machine are looked at before its work begins.

Other file systems (``s3a://…``, ``hdfs://…``) are left to Spark, and so are plain paths where they mean another one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from stateflow.errors import ConfigError
from stateflow.output_places import require_folder

_DEFAULT_FILE_SYSTEM = "fs.defaultFS"
_HAS_SETTINGS = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR", "SPARK_HOME")
"""Environment variables of folders whose settings Java reads when it starts."""


def require_own_folder(location: str, said: str) -> None:
    """Raise where stateflow itself cannot write a folder on this machine; ``said`` is the option that names it.

    Raises ``ConfigError``, and ``DiskFull``.
    """
    path = _on_this_machine(location)
    if path is not None:
        require_folder(path, said)


def require_spark_folder(
    location: str, said: str, *, is_new: bool = False, conf: Mapping[str, str] | None = None
) -> None:
    """The same of a folder that Spark writes, and that must not be there yet where it ``is_new``.

    ``conf`` are the settings of a session that is not there yet.
    """
    path = _of_spark(location, conf or {})
    if path is None:
        return
    if is_new and path.exists():
        raise exists_already(location)
    require_folder(path, said)


def exists_already(location: str) -> ConfigError:
    """What is told of a folder that would be written over."""
    return ConfigError(f"{location} exists already.", action="name another folder, or add --overwrite.")


def _on_this_machine(location: str) -> Path | None:
    scheme, colon, rest = location.partition(":")
    if colon and scheme == "file":
        return Path("/" + rest.lstrip("/"))
    return None if "://" in location else Path(location)


def _of_spark(location: str, conf: Mapping[str, str]) -> Path | None:
    is_plain = ":" not in location
    return None if is_plain and not _is_default_local(conf) else _on_this_machine(location)


def _is_default_local(conf: Mapping[str, str]) -> bool:
    """Whether a path without a scheme surely means a file of this machine."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit's Java runs already, and knows
        return _default_file_system().startswith("file:")
    return not any(map(os.environ.get, _HAS_SETTINGS)) and f"spark.hadoop.{_DEFAULT_FILE_SYSTEM}" not in conf


def _default_file_system() -> str:
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    jvm = SparkContext._jvm
    assert jvm is not None, "it is connected to by now"
    hadoop = jvm.org.apache.spark.deploy.SparkHadoopUtil.get()
    return str(hadoop.newConfiguration(SparkConf()._jconf).get(_DEFAULT_FILE_SYSTEM))
