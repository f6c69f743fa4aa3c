"""``tpuconvert ci``."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import click

from tpuconvert.ci import reports
from tpuconvert.ci.cache import Cache
from tpuconvert.ci.manifest import read_manifest
from tpuconvert.ci.report_page import cached_outcomes, describe_outcomes, overview
from tpuconvert.ci.runner import Outcome, exit_code, run, select_jobs
from tpuconvert.cli.file_parameters import InputFile, OutputFolder
from tpuconvert.cli.help_sections import SectionedCommand
from tpuconvert.cli.json_output import json_option, print_json
from tpuconvert.cli.option_fields import command_options
from tpuconvert.cli.problems import ensure, ensure_writable
from tpuconvert.cli.shared_options import no_plugins_option, report_option
from tpuconvert.cli.terminal import echo, write_commands
from tpuconvert.installed import version
from tpuconvert.option_declaration import option
from tpuconvert.report.report_file import write_reports
from tpuconvert.schema.system.file_replacement import replacing
from tpuconvert.schema.system.input_files import note_input, refuse_input

DEFAULT = "tpuconvert.yaml"

DEFAULT_CACHE = ".tpuconvert-cache"


@dataclass(frozen=True, kw_only=True)
class CiOptions:
    """Options of ``ci``."""

    only: tuple[str, ...] = option((), "Models by name, such as 'face*'.", metavar="PATTERN", is_repeated=True)
    jobs: int | None = option(None, "Models made at once. Default: one per processor.", flags="--jobs -j", lower=1)
    scheduler: str | None = option(
        None,
        "Address of a dask scheduler whose workers convert the models, such as tcp://host:8786.",
        metavar="ADDRESS",
    )
    folder: str = option(
        DEFAULT_CACHE,
        "Folder of converted models, with the digest of their inputs as key.",
        flags="--cache",
        metavar="FOLDER",
        type=OutputFolder(),
    )
    junit: str | None = option(None, "Write the outcome as JUnit XML.", metavar="FILE", is_output=True)
    sarif: str | None = option(None, "Write what is wrong as SARIF 2.1.0.", metavar="FILE", is_output=True)
    markdown: str | None = option(
        None,
        "Write a summary as Markdown; $GITHUB_STEP_SUMMARY gets it as well.",
        metavar="FILE",
        is_output=True,
    )


@click.command("ci", cls=SectionedCommand)
@click.argument("manifest", type=InputFile(), default=DEFAULT, metavar=f"[{DEFAULT}]")
@command_options(CiOptions)
@report_option
@no_plugins_option
@json_option
@click.pass_context
def command(
    context: click.Context,
    manifest: str,
    options: CiOptions,
    report: str | None,
    as_json: bool,
) -> None:
    """Convert every model of a MANIFEST that is not in the cache, and compare all models with their limits.

    Exit code: the exit code of the first error, else 5 if a limit is missed, else 0. An error does not stop the other
    models.

    \b
    tpuconvert ci models.yaml --jobs 2 --junit results.xml --report report.html
    """
    ensure(
        options.jobs is None or options.scheduler is None,
        "--jobs with --scheduler",
        hint="the scheduler has its own workers",
    )
    ensure(
        options.folder != DEFAULT_CACHE or not os.path.islink(options.folder),
        f"{options.folder} is a link, which another user may have put beside the manifest",
        hint="remove it, or name the folder: --cache FOLDER",
    )
    jobs_of_all = read_manifest(Path(manifest))
    for location in (location for job in jobs_of_all for location in job.inputs):
        note_input(location)
    outputs = {os.path.realpath(job.files["output"]): job.name for job in jobs_of_all if "output" in job.files}
    for path in (options.junit, options.sarif, options.markdown, report):
        ensure_writable(path)
        name = None if path is None else outputs.get(os.path.realpath(path))
        ensure(name is None, f"{path}: is the output of the model '{name}'", hint="name another file for the report")
    jobs = select_jobs(jobs_of_all, options.only)

    def watch(outcome: Outcome) -> None:
        echo(reports.to_text(outcome), err=as_json)

    outcomes = run(jobs, Cache(Path(options.folder)), options.jobs or os.cpu_count() or 1, watch, options.scheduler)
    if as_json:
        print_json(reports.CiDocument(version(), outcomes))
    written = [
        (options.junit, reports.to_junit),
        (options.sarif, reports.to_sarif),
        (options.markdown, reports.to_markdown),
    ]
    for path, form in written:
        if path is not None:
            with replacing(Path(path)) as file:
                file.write(form(outcomes).encode("utf-8"))
    if report is not None:
        with cached_outcomes(outcomes, options.folder):
            write_reports(Path(report), describe_outcomes(outcomes), Path(manifest).name, overview(outcomes))
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        refuse_input(summary)
        with open(summary, "a", encoding="utf-8") as page:
            page.write(reports.to_markdown(outcomes))
    if os.environ.get("GITHUB_ACTIONS") == "true":
        write_commands(reports.to_annotations(outcomes))
    counts = {
        status: sum(outcome.status == status for outcome in outcomes)
        for status in ("made", "cached", "failed", "error")
    }
    nouns = {**{status: status for status in counts}, "error": "error" if counts["error"] == 1 else "errors"}
    echo(", ".join(f"{count} {nouns[status]}" for status, count in counts.items() if count), err=True)
    context.exit(exit_code(outcomes))
