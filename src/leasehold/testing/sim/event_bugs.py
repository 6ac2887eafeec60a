"""Bugs of the event stream, planted from outside."""

from __future__ import annotations

from leasehold.events.follower import Follower
from leasehold.events.messages import Message
from leasehold.events.stream import EventStream, MustReload, Page, Resumed
from leasehold.index.changes import Change, Changes

NEVER_DURABLE = 1 << 62


def bend_stream(bugs: frozenset[str], stream: EventStream) -> None:
    """Plant a bug into a publisher."""
    if "resume-any-epoch" in bugs and type(stream) is EventStream:
        stream.__class__ = TrustingStream


def bend_changes(bugs: frozenset[str], changes: Changes) -> Changes:
    """Plant a bug into the list of changes."""
    if "early-event" in bugs:
        changes.__class__ = EarlyChanges
    if "silent-overflow" in bugs:
        changes.__class__ = SilentChanges
    if "early-page" in bugs:
        changes.__class__ = AllPublished
    return changes


class EarlyChanges(Changes):
    """Changes are published before their records are durable."""

    __slots__ = ()

    def take(self, durable_n: int, limit: int) -> list[Change]:
        return super().take(NEVER_DURABLE, limit)


class SilentChanges(Changes):
    """Dropped changes are forgotten."""

    __slots__ = ()

    def _add(self, change: Change) -> None:
        super()._add(change)
        self.dropped_n = 0


class AllPublished(Changes):
    """Every readable object counts as published; a reload does not wait until what was dropped is durable."""

    __slots__ = ()

    def unpublished(self) -> dict[int, Change]:
        return {}

    def _add(self, change: Change) -> None:
        super()._add(change)
        self.dropped_n = min(self.dropped_n, 1)


class TrustingStream(EventStream):
    """Every subscriber continues, whatever it has missed."""

    __slots__ = ()

    def _reload(self, wall_ms: int, changes: Changes, reason: str) -> Message:
        message = super()._reload(wall_ms, changes, reason)
        return self._encoder.changes(wall_ms, message.epoch, message.count, [])

    def resume(self, epoch: int, count: int) -> Resumed | MustReload:
        answer = super().resume(epoch, count)
        if isinstance(answer, MustReload) and epoch:
            return Resumed(self.epoch, self.count, [], answer.fingerprint, answer.objects)
        return answer


def new_follower(bugs: frozenset[str]) -> Follower:
    """A subscriber, perhaps with a bug."""
    if "page-wins" in bugs:
        return PageWins()
    return AnyPage() if "late-page" in bugs else Follower()


class AnyPage(Follower):
    """Every page counts as the one that was requested."""

    __slots__ = ()

    def _expects(self, page: Page) -> bool:
        return self.loading and self._page is None


class PageWins(Follower):
    """A page wins over later events."""

    __slots__ = ()

    def _apply_page(self, page: Page) -> None:
        self._touched.clear()
        super()._apply_page(page)
