"""`stateflow jobs`: the Spark jobs as files: list, read, copy and run them."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from stateflow.cli.options import OutputFile, dry_run_option, json_array_option, json_option, spark_setting
from stateflow.cli.output import emit_json, emit_table
from stateflow.errors import ConfigError
from stateflow.spark.submit import JobTemplate, Submission, check_copy, template, templates, write_copy

_PASS_ON = {"ignore_unknown_options": True, "allow_interspersed_args": False}


@click.group()
def command() -> None:
    """List, show and submit the Spark jobs."""


@command.command(name="list")
@json_array_option
def list_command(as_json: bool) -> None:
    """List the job templates."""
    jobs = templates()
    if as_json:
        emit_json([_facts(job) for job in jobs])
        return
    emit_table(["job", "what it does"], [[job.name, job.summary] for job in jobs])


def _facts(job: JobTemplate) -> dict[str, str]:
    return {"name": job.name, "summary": job.summary, "path": str(job.path)}


@command.command()
@click.argument("name")
@json_option
def show(name: str, as_json: bool) -> None:
    """Print a job template."""
    job = template(name)
    if as_json:
        emit_json({**_facts(job), "source": job.source})
        return
    click.echo(job.source, nl=False)


@command.command()
@click.argument("name")
@click.argument("file", type=OutputFile())
@dry_run_option
@json_option
def new(name: str, file: Path, dry_run: bool, as_json: bool) -> None:
    """Copy a job template to a file, to be changed and given to spark-submit."""
    if dry_run:
        check_copy(name, file)
    else:
        write_copy(name, file)
    if as_json:
        emit_json({"job": name, "file": file, "dry_run": dry_run})
        return
    if dry_run:
        click.echo(f"Would write {file}.")
        return
    click.echo(f"Wrote {file}. Run it with `stateflow jobs submit {file} …` or spark-submit.")


@command.command(context_settings=_PASS_ON)
@click.argument("job", metavar="JOB|FILE")
@click.option("--master", default="local[2,4]", show_default=True, help="Where Spark runs.")
@click.option("--conf", multiple=True, metavar="NAME=VALUE", help="A Spark setting; may be repeated.")
@dry_run_option
@json_option
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def submit(
    ctx: click.Context,
    job: str,
    master: str,
    conf: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
    arguments: tuple[str, ...],
) -> None:
    """Run a job with spark-submit. Options of Spark stand before JOB, those of the job after it.

    With --json before JOB the command line and, when the job has ended, its exit code are told in one object, on a line
    behind what the job itself prints.
    """
    program = Path(job) if job.endswith(".py") else template(job).path
    if not program.exists():
        raise ConfigError(f"There is no file {program}.", action="give a job's name or an existing file.")
    settings = dict(map(spark_setting, conf))
    submission = Submission(program=program, arguments=arguments, master=master, conf=settings)
    if dry_run:
        if as_json:
            emit_json({"command": submission.command(), "dry_run": True})
        else:
            click.echo(shlex.join(submission.command()))
        return
    exit_code = submission.run()
    if as_json:
        emit_json({"command": submission.command(), "dry_run": False, "exit_code": exit_code})
    ctx.exit(exit_code)
