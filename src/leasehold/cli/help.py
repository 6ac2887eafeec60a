"""Help that shows how a command is used: examples at the end, and settings under the section they belong to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from leasehold.cli.settings import SettingOption

# What a section of the settings file is about, for people who see its flags for the first time.
TITLES = {
    "node": "Where it is: [node]",
    "index": "What it keeps, and for how long: [index]",
    "ha": "The hot standby: [ha]",
    "guardian": "The guardian: [guardian]",
    "wire": "Bounds of the data plane: [wire]",
}


SENTENCE_MAX = 200  # as it stands, over two lines if need be: half a sentence helps nobody


class Chapters(click.Group):
    """A group whose commands are listed under headings, each with its whole first sentence."""

    def chapters(self, ctx: click.Context) -> dict[str, tuple[str, ...]]:
        return {"Commands": tuple(self.list_commands(ctx))}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for chapter, names in self.chapters(ctx).items():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            with formatter.section(chapter):
                formatter.write_dl(
                    [(name, command.get_short_help_str(SENTENCE_MAX)) for name, command in commands if command]
                )


class Explained(click.Command):
    """A command with examples. Many settings are listed under their sections, a few under one heading."""

    def __init__(self, *args: Any, examples: Sequence[tuple[str, str]] = (), **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.examples = examples

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        chapters: dict[str, list[tuple[str, str]]] = {}
        sections = {option.section for option in self.params if isinstance(option, SettingOption)}
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx)
            if record is not None and record[1]:  # of an argument the usage line says all that there is
                grouped = isinstance(option, SettingOption) and len(sections) > 1
                chapter = TITLES[option.section] if isinstance(option, SettingOption) and grouped else "Options"
                chapters.setdefault(chapter, []).append(record)
        chapters["Options"] = chapters.pop("Options")  # last, where `--help` itself is looked for
        for chapter, records in chapters.items():
            with formatter.section(chapter):
                formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if not self.examples:
            return
        with formatter.section("Examples"):
            for line, meaning in self.examples:
                if meaning:
                    formatter.write(f"{'':>{formatter.current_indent}}# {meaning}\n")
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
