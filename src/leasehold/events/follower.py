"""The subscriber's decisions: which events to apply, and what to request. Pure."""

from __future__ import annotations

from msgspec import Struct

from leasehold.events.messages import Event, Message, Reload, Removed, Stored, events_of
from leasehold.events.stream import Answer, Cursor, MustReload, Page, Resumed
from leasehold.index.changes import with_version, without_version

Name = tuple[bytes, bytes]  # tenant, key


class ResumeRequest(Struct, frozen=True, tag="resume"):
    """Send the messages after this one."""

    epoch: int
    count: int


class PageRequest(Struct, frozen=True, tag="page"):
    """Send the objects from this place on."""

    cursor: Cursor | None


Request = ResumeRequest | PageRequest


class Follower:
    """A picture of the pool, kept right by messages in order, and loaded by pages where some are missing.

    **Law**: later messages win over a page. A page is applied when all messages up to its count are, and never
    changes an object that a later message named.
    """

    __slots__ = (
        "_cursor", "_fingerprint", "_loading_since", "_page", "_touched", "count", "diverged", "epoch", "loading",
        "missing", "picture", "reloads", "resumes",
    )  # fmt: skip

    def __init__(self) -> None:
        self.picture: dict[Name, int] = {}  # put numbers
        self._fingerprint = 0
        self.epoch = 0
        self.count = 0
        self.missing = True  # messages are missing: request them
        self.loading = False
        self._loading_since = 0  # older pages belong to an earlier load
        self._cursor: Cursor | None = None
        self._page: Page | None = None  # waits for the messages up to its count
        self._touched: dict[Name, int] = {}  # while loading: the count of the last message that named it
        self.reloads = 0
        self.resumes = 0
        self.diverged = 0  # the picture was wrong although no message was missing: a bug of the publisher

    @property
    def whole(self) -> bool:
        """Whether the picture is that of the last message."""
        return not self.missing and not self.loading and self.epoch > 0

    def request(self) -> Request:
        """What to request now. If nothing is missing, the answer proves that nothing is."""
        if self.loading and not self.missing and self._page is None:
            return PageRequest(self._cursor)
        return ResumeRequest(self.epoch, self.count)

    def received(self, message: Message) -> None:
        """A message arrived, perhaps again, late, or after lost ones."""
        epoch, count = message.epoch, message.count
        if epoch < self.epoch or (epoch == self.epoch and count <= self.count):
            return
        if (epoch == self.epoch and count == self.count + 1) or (epoch > self.epoch and count == 1):
            self.epoch, self.count = epoch, count
            for event in events_of(message.payload)[1]:
                self._apply(event)
            if self._page is not None:
                self._apply_page(self._page)
        else:
            self.missing = True

    def answered(self, answer: Answer) -> None:
        """The publisher answered a request."""
        if answer.epoch < self.epoch:
            return  # from a former leader
        match answer:
            case Resumed():
                self._resumed(answer)
            case MustReload():
                if answer.epoch > self.epoch or answer.count >= self.count:
                    self.epoch, self.count, self.missing = answer.epoch, answer.count, False
                    self._compare(answer.fingerprint, answer.objects)
            case Page():
                if answer.epoch > self.epoch:
                    self.missing = True
                elif self._expects(answer):
                    self._apply_page(answer)

    def _expects(self, page: Page) -> bool:
        """Whether this is the next page of the present load: answers to older requests may arrive late."""
        expected = self.loading and self._page is None and page.start == self._cursor
        return expected and page.count >= self._loading_since

    def _resumed(self, answer: Resumed) -> None:
        if answer.epoch != self.epoch:
            return
        for message in answer.messages:
            self.received(message)
        if self.count >= answer.count:
            self.resumes += self.missing
            self.missing = False
            if self.count == answer.count and not self.loading and self._differs(answer.fingerprint, answer.objects):
                self.diverged += 1
                self._load()

    def _compare(self, fingerprint: int, objects: int) -> None:
        if self.loading or self._differs(fingerprint, objects):
            self._load()

    def _differs(self, fingerprint: int, objects: int) -> bool:
        return (fingerprint, objects) != (self._fingerprint, len(self.picture))

    def _load(self) -> None:
        """Load the picture from the beginning."""
        self.loading = True
        self.reloads += 1
        self.picture.clear()
        self._touched.clear()
        self._fingerprint = 0
        self._cursor = self._page = None
        self._loading_since = self.count

    def _apply(self, event: Event) -> None:
        match event:
            case Reload():
                self._compare(event.fingerprint, event.objects)
            case Stored(tenant, key, put_seq):
                self._set((tenant, key), put_seq)
            case Removed(tenant, key, put_seq):
                if self.picture.get((tenant, key), put_seq) == put_seq:
                    self._set((tenant, key), 0)

    def _set(self, name: Name, put_seq: int) -> None:
        self._note(name, put_seq)
        if self.loading:
            self._touched[name] = self.count

    def _note(self, name: Name, put_seq: int) -> None:
        old = self.picture.pop(name, 0)
        if old:
            self._fingerprint = without_version(self._fingerprint, old)
        if put_seq:
            self.picture[name] = put_seq
            self._fingerprint = with_version(self._fingerprint, put_seq)

    def _apply_page(self, page: Page) -> None:
        if page.count > self.count:
            self._page = page  # the messages up to its count come first
            return
        self._page = None
        for tenant, key, put_seq in page.objects:
            if self._touched.get((tenant, key), 0) <= page.count:
                self._note((tenant, key), put_seq)
        self._cursor = page.next
        if page.next is None:
            self.loading = False
            self._touched.clear()
