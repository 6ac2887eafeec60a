"""Help texts with examples at the end, and with settings listed by section."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from leasehold.cli.settings import SettingOption

SENTENCE_MAX = 200  # never cut a sentence: it may take two lines


class Chapters(click.Group):
    """A group that lists its commands under headings, each with its complete first sentence."""

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
    """A command with examples. Settings of several sections are listed by section."""

    def __init__(self, *args: Any, examples: Sequence[tuple[str, str]] = (), **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.examples = examples

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        chapters: dict[str, list[tuple[str, str]]] = {}
        sections = {option.section for option in self.params if isinstance(option, SettingOption)}
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx)
            if record is not None and record[1]:  # arguments have no help text: the usage line shows them
                grouped = isinstance(option, SettingOption) and len(sections) > 1
                chapter = option.heading if isinstance(option, SettingOption) and grouped else "Options"
                chapters.setdefault(chapter, []).append(record)
        chapters["Options"] = chapters.pop("Options")  # last, next to `--help`
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
