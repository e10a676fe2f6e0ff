"""The options that several nouns share, so that they are spelled and documented alike."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from stateflow.cli.which_broker import default_brokers
from stateflow.errors import ConfigError
from stateflow.finite import finite_text, is_finite_from
from stateflow.output_places import require_file, require_folder
from stateflow.setting_bounds import SECONDS_MAX

_UNITS_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


class Duration(click.ParamType[float]):
    """`500ms`, `20s`, `5m`, `1h`, or seconds without a unit; with ``is_above_zero`` none that is 0."""

    name = "duration"

    def __init__(self, *, is_above_zero: bool = False) -> None:
        self._is_above_zero = is_above_zero

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """To seconds."""
        if isinstance(value, int | float):
            return float(value)
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h)?", str(value).strip())
        if match is None:
            self.fail(f"{value!r} is not a duration; write for example 500ms, 20s, 5m.", param, ctx)
        seconds = float(match[1]) * _UNITS_SECONDS[match[2] or "s"]
        if seconds > SECONDS_MAX or (self._is_above_zero and seconds == 0):
            low = "above 0 and " if self._is_above_zero else ""
            self.fail(
                f"{value!r} is too short or too long; write a time {low}up to {SECONDS_MAX:,} s, for example 1s.",
                param,
                ctx,
            )
        return seconds


class Number(click.ParamType[float]):
    """A finite number of at least ``low``, or above it (``is_above``); never NaN or infinity."""

    name = "number"

    def __init__(self, low: float = 0.0, *, is_above: bool = False) -> None:
        self._low, self._is_above = low, is_above

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """To a float."""
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not is_finite_from(number, self._low, is_above=self._is_above):
            self.fail(f"{value!r} is no {finite_text(self._low, is_above=self._is_above)}.", param, ctx)
        return number


class Size(click.ParamType[float]):
    """`30MiB`, `30MB`, `1.5GiB`, or bytes without a unit."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """To bytes."""
        if isinstance(value, int | float):
            return float(value)
        match = re.fullmatch(r"(\d+(?:\.\d+)?(?:e\d+)?)\s*([kmgt]i?)?b?", str(value).strip().lower())
        if match is None:
            self.fail(f"{value!r} is not a size; write for example 30MiB, 2GB, 500000.", param, ctx)
        base = 1024.0 if (match[2] or "").endswith("i") else 1000.0
        size = float(match[1]) * base ** " kmgt".index((match[2] or " ")[0])
        if not math.isfinite(size):
            self.fail(f"{value!r} is too large; write for example 30MiB, 2GB, 500000.", param, ctx)
        return size


class Cores(click.ParamType[float]):
    """`0.5`, or `50%` of one core."""

    name = "cores"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """To cores."""
        if isinstance(value, int | float):
            return float(value)
        match = re.fullmatch(r"(\d*\.?\d+(?:e-?\d+)?)\s*(%)?", str(value).strip().lower())
        if match is None:
            self.fail(f"{value!r} is not a number of cores; write for example 0.5 or 50%.", param, ctx)
        cores = float(match[1]) / (100 if match[2] else 1)
        if not math.isfinite(cores):
            self.fail(f"{value!r} is too large; write for example 0.5 or 50%.", param, ctx)
        return cores


class OutputFile(click.Path):
    """A file to be written, in a folder that is there or is made: refused at once where that cannot be."""

    def __init__(self, *, makes_folder: bool = False) -> None:
        super().__init__(dir_okay=False, path_type=Path)
        self._makes_folder = makes_folder

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """To a path. Raises ``ConfigError`` and ``DiskFull``."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        require_file(path, _said(param), makes_folder=self._makes_folder)
        return path


class OutputFolder(click.Path):
    """A folder to be written to, and made if it is not there: refused at once where that cannot be."""

    def __init__(self) -> None:
        super().__init__(file_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """To a path. Raises ``ConfigError`` and ``DiskFull``."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        require_folder(path, _said(param))
        return path


def _said(param: click.Parameter | None) -> str:
    """How a parameter is written on the command line."""
    if param is None:
        return "the place"
    return param.opts[0] if isinstance(param, click.Option) else param.human_readable_name


def _json(what: str) -> Callable[[Any], Any]:
    return click.option("--json", "as_json", is_flag=True, help=f"Print {what} instead of text.")


json_option = _json("one JSON object")
json_array_option = _json("one JSON array")
"""Of commands that list what has no facts beside."""
json_lines_option = _json("JSON, one object per line: one or more of each topic,")
"""Of commands that take several topics, and tell of each as soon as it is known."""
dry_run_option = click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")


target_argument = click.argument("target", metavar="APP")
optional_target_argument = click.argument("target", metavar="[APP]", required=False)
"""Of commands that take ``--app`` instead, too."""
_BROKERS_HELP = "Bootstrap servers, host:port[,host:port…]; overrides every setting."
brokers_override = click.option("--brokers", metavar="HOST:PORT", help=_BROKERS_HELP)
"""Of commands about an application, whose settings say where it is."""
brokers_option = click.option(
    "--brokers",
    envvar="STATEFLOW_BROKERS",
    default=default_brokers,
    show_default="as stateflow.toml says, else the broker of `stateflow up`, else localhost:9092",
    help=_BROKERS_HELP,
)
"""Of commands that concern no application, or take it by its id."""
state_dir_override = click.option(
    "--state-dir", type=click.Path(path_type=Path, file_okay=False), help="Where local state is kept."
)
client_config_option = click.option(
    "--client-config",
    "client_config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    envvar="STATEFLOW_CLIENT_CONFIG",
    help="Properties of the Kafka client (security.protocol, sasl.username …), one a line.",
)
broker_name_option = click.option(
    "--name",
    metavar="NAME",
    help="Which of several brokers of `stateflow up` is meant; STATEFLOW_UP, else the default one.",
)
app_id_option = click.option(
    "--app", "app_id", help="Application id, when no code is at hand: the catalog is enough."
)
images_option = click.option(
    "--images",
    metavar="LOCATION",
    help="Where images are kept: a directory, s3://…, gs://… or hdfs://…; the setting `images` by default.",
)


def stacked(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Several options as one, in the order in which help shows them."""

    def decorate(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def spark_setting(text: str) -> tuple[str, str]:
    """Name and value of a ``--conf``. Raises ``ConfigError``."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(
            f"--conf {text!r} is not NAME=VALUE.", action="write for example spark.driver.memory=2g."
        )
    return name, value
