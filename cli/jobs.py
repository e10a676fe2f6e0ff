"""`stateflow jobs`: the Spark jobs as files: list, read, copy and run them."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from stateflow.cli.options import dry_run_option, json_option, spark_setting
from stateflow.cli.output import emit_json, emit_table
from stateflow.errors import ConfigError
from stateflow.spark.submit import Submission, template, templates, write_copy

_PASS_ON = {"ignore_unknown_options": True, "allow_interspersed_args": False}


@click.group()
def command() -> None:
    """List, show and submit the Spark jobs."""


@command.command(name="list")
@json_option
def list_command(as_json: bool) -> None:
    """List the job templates."""
    jobs = templates()
    if as_json:
        emit_json([{"name": job.name, "summary": job.summary, "path": str(job.path)} for job in jobs])
        return
    emit_table(["job", "what it does"], [[job.name, job.summary] for job in jobs])


@command.command()
@click.argument("name")
def show(name: str) -> None:
    """Print a job template."""
    click.echo(template(name).source, nl=False)


@command.command()
@click.argument("name")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def new(name: str, file: Path) -> None:
    """Copy a job template to a file, to be changed and given to spark-submit."""
    write_copy(name, file)
    click.echo(f"Wrote {file}. Run it with `stateflow jobs submit {file} …` or spark-submit.")


@command.command(context_settings=_PASS_ON)
@click.argument("job", metavar="JOB|FILE")
@click.option("--master", default="local[2,4]", show_default=True, help="Where Spark runs.")
@click.option("--conf", multiple=True, metavar="NAME=VALUE", help="A Spark setting; may be repeated.")
@dry_run_option
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def submit(
    ctx: click.Context,
    job: str,
    master: str,
    conf: tuple[str, ...],
    dry_run: bool,
    arguments: tuple[str, ...],
) -> None:
    """Run a job with spark-submit. Options of Spark stand before JOB, those of the job after it."""
    program = Path(job) if job.endswith(".py") else template(job).path
    if not program.exists():
        raise ConfigError(f"There is no file {program}.", action="give a job's name or an existing file.")
    settings = dict(map(spark_setting, conf))
    submission = Submission(program=program, arguments=arguments, master=master, conf=settings)
    if dry_run:
        click.echo(shlex.join(submission.command()))
        return
    ctx.exit(submission.run())
