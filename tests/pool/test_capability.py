"""The verifier of capabilities against a model of masters, hosts and thieves, and planted bugs that it must find."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from leasehold.pool.capability import (
    CAPABILITY_BYTES,
    NONE,
    Capability,
    Keyring,
    Refusal,
    Right,
    Stamp,
    Verifier,
    Windows,
    segment_key,
    sign,
)

TTL_MS, KEEP_MS = 1_000, 3_000
SEGMENT, OTHER = b"s" * 16, b"o" * 16


class Broken(Exception):
    """The verifier accepted a request that it must refuse, or the other way round."""


class Given:
    """A capability that a master has given out, and the facts that decide over it."""

    def __init__(self, raw: bytes, what: Capability, secret: bytes, now_ms: int, pings: int) -> None:
        self.raw, self.what, self.secret, self.now_ms = raw, what, secret, now_ms
        self.pings = pings  # sent by the host before


class World:
    """One host, and one master after the other. Pings are lost, and their answers too."""

    def __init__(self, seed: int, verifier: Callable[[Keyring], Verifier]) -> None:
        self.rng = random.Random(seed)
        self.now_ms = 0
        self.secrets: tuple[bytes, ...] = (b"first" * 8,)
        self.removed: dict[bytes, int] = {}
        self.verifier = verifier(Keyring(self.secrets))
        self.verifier.lend(SEGMENT)
        self.epoch, self.window, self.incarnation = 5, 0, 10
        self.confirmed = 0  # the incarnation that the host knows
        self.pings = 0
        self.answered: list[tuple[int, int]] = []  # (when, how many pings had been sent by then, this one included)
        self.given: list[Given] = []

    def step(self) -> None:
        self.now_ms += self.rng.randrange(120)
        actions = [self.ping, self.give, self.use, self.use, self.steal]
        if self.rng.random() < 0.05:
            actions = [self.fail_over, self.remount, self.rotate]
        self.rng.choice(actions)()

    def ping(self) -> None:
        window, fate = self.verifier.windows.open(), self.rng.random()
        self.pings += 1
        if fate < 0.2:
            return
        self.window = window
        if fate < 0.4:
            return
        self.verifier.windows.answered(self.now_ms, self.epoch, window)
        self.verifier.keyring.update(self.now_ms, self.secrets, KEEP_MS)
        self.verifier.mounted(self.incarnation)
        self.confirmed = self.incarnation
        self.answered.append((self.now_ms, self.pings))

    def give(self) -> None:
        right, start, length = self.rng.choice(list(Right)), self.rng.randrange(50), self.rng.randrange(1, 50)
        what = Capability(right, self.incarnation, start, length, self.rng.randrange(99), self.epoch, self.window)
        raw = sign(segment_key(self.secrets[0], SEGMENT, self.incarnation), what)
        self.given.append(Given(raw, what, self.secrets[0], self.now_ms, self.pings))

    def use(self) -> None:
        """The holder uses it as it was given."""
        if not self.given:
            return
        one = self.rng.choice(self.given[-20:])
        what, inside = one.what, self.rng.randrange(one.what.length)
        verdict = self.verifier.judge(self.now_ms, Right(what.right), what.address + inside, 1, one.raw)
        known = one.secret in self.secrets or self.now_ms < self.removed.get(one.secret, 0)
        passed = any(self.now_ms >= when + TTL_MS and sent > one.pings for when, sent in self.answered)
        forgotten = one.secret in self.removed and self.keyring_knows_removal(one.secret)
        if verdict == what:
            if passed or what.incarnation < self.confirmed or forgotten:
                raise Broken("an expired capability was accepted")
        elif known and what.incarnation >= self.confirmed and self.now_ms < one.now_ms + TTL_MS:
            raise Broken(f"an honest request was refused: {verdict!r}")

    def keyring_knows_removal(self, secret: bytes) -> bool:
        """The removal was read with an answered ping, and the time for it has passed."""
        read = [when for when, _ in self.answered if when >= self.removed[secret] - KEEP_MS]
        return bool(read) and self.now_ms >= read[0] + KEEP_MS

    def steal(self) -> None:
        """A thief changes it, or uses it for another purpose: never accepted."""
        if not self.given:
            return
        one = self.rng.choice(self.given[-20:])
        raw, what = bytearray(one.raw), one.what
        right, address, length = Right(what.right), what.address, what.length
        leaked = [secret for secret in self.removed if self.keyring_knows_removal(secret)]
        match self.rng.randrange(7 if leaked else 6):
            case 0:
                raw[self.rng.randrange(len(raw))] ^= 1 << self.rng.randrange(8)
            case 1:
                right = Right.READ if right is Right.WRITE else Right.WRITE
            case 2:
                length += 1
            case 3:
                address -= 1
            case 4:
                raw[:] = sign(segment_key(b"guessed" * 8, SEGMENT, self.incarnation), what)
            case 5:
                raw[:] = sign(segment_key(self.secrets[0], OTHER, self.incarnation), what)
            case 6:
                raw[:] = sign(segment_key(self.rng.choice(leaked), SEGMENT, what.incarnation), what)
        if not isinstance(self.verifier.judge(self.now_ms, right, address, length, bytes(raw)), Refusal):
            raise Broken("a forged request was accepted")

    def fail_over(self) -> None:
        self.epoch += self.rng.randrange(1, 3)
        self.window = 0

    def remount(self) -> None:
        self.incarnation += self.rng.randrange(1, 5)

    def rotate(self) -> None:
        """A new secret in place of the old one."""
        (old,) = self.secrets
        self.secrets = (self.rng.randbytes(32),)
        self.removed[old] = self.now_ms + KEEP_MS
        self.verifier.keyring.update(self.now_ms, self.secrets, KEEP_MS)


def run(seed: int, verifier: Callable[[Keyring], Verifier], steps: int = 400) -> None:
    world = World(seed, verifier)
    for _ in range(steps):
        world.step()


def run_all(verifier: Callable[[Keyring], Verifier]) -> None:
    for seed in range(150):
        run(seed, verifier)


def shipped(keyring: Keyring) -> Verifier:
    return Verifier(keyring, TTL_MS)


def test_the_verifier_keeps_its_promises() -> None:
    run_all(shipped)


class _AnyWindow(Windows):
    def fresh(self, now_ms: int, stamp: Stamp) -> bool:
        return True


class _LastWindowOnly(Windows):
    def fresh(self, now_ms: int, stamp: Stamp) -> bool:
        return not self._answered or stamp >= self._answered[-1][1]


class _WindowsWithoutEpochs(Windows):
    def answered(self, now_ms: int, epoch: int, window: int) -> None:
        super().answered(now_ms, 0, window)

    def fresh(self, now_ms: int, stamp: Stamp) -> bool:
        return super().fresh(now_ms, (0, stamp[1]))


class _CountedWhenSent(Windows):
    def open(self) -> int:
        window = super().open()
        self._sent_ms = getattr(self, "_sent_ms", 0) + 60
        self._answered.append((self._sent_ms - TTL_MS, (5, window)))
        return window


class _EpochsGoBack(Windows):
    def fresh(self, now_ms: int, stamp: Stamp) -> bool:
        return super().fresh(now_ms, stamp) or (bool(self._answered) and stamp[0] < self._answered[-1][1][0])


class _AnyRange(Verifier):
    def judge(self, now_ms: int, right: Right, address: int, length: int, raw: bytes) -> Capability | Refusal:
        given = super().judge(now_ms, right, address, 0, raw)
        return super().judge(now_ms, right, given.address, 1, raw) if isinstance(given, Capability) else given


class _AnyRight(Verifier):
    def judge(self, now_ms: int, right: Right, address: int, length: int, raw: bytes) -> Capability | Refusal:
        given = super().judge(now_ms, Right.READ, address, length, raw)
        return super().judge(now_ms, Right.WRITE, address, length, raw) if isinstance(given, Refusal) else given


class _AnyMount(Verifier):
    def mounted(self, incarnation: int) -> None:
        return


class _Unsigned(Verifier):
    def _signed(self, now_ms: int, given: Capability, raw: bytes) -> bool:
        return True


class _ForgetsImmediately(Keyring):
    def accepted(self, now_ms: int) -> tuple[bytes, ...]:
        return self._secrets


class _NeverForgets(Keyring):
    def update(self, now_ms: int, secrets: tuple[bytes, ...], keep_ms: int) -> None:
        super().update(now_ms, secrets, 1 << 40)


def _windows(cls: type[Windows]) -> Callable[[Keyring], Verifier]:
    def make(keyring: Keyring) -> Verifier:
        made = Verifier(keyring, TTL_MS)
        made.windows = cls(TTL_MS)
        return made

    return make


def _verifier(cls: type[Verifier]) -> Callable[[Keyring], Verifier]:
    return lambda keyring: cls(keyring, TTL_MS)


def _keyring(cls: type[Keyring]) -> Callable[[Keyring], Verifier]:
    return lambda keyring: Verifier(cls(keyring.accepted(0)), TTL_MS)


PLANTED: dict[str, Callable[[Keyring], Verifier]] = {
    "any-window": _windows(_AnyWindow),
    "last-window-only": _windows(_LastWindowOnly),
    "windows-without-epochs": _windows(_WindowsWithoutEpochs),
    "counted-when-sent": _windows(_CountedWhenSent),
    "epochs-go-back": _windows(_EpochsGoBack),
    "any-range": _verifier(_AnyRange),
    "any-right": _verifier(_AnyRight),
    "any-mount": _verifier(_AnyMount),
    "unsigned": _verifier(_Unsigned),
    "old-secret-forgotten-immediately": _keyring(_ForgetsImmediately),
    "old-secret-kept-forever": _keyring(_NeverForgets),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str) -> None:
    with pytest.raises(Broken):
        run_all(PLANTED[name])


def test_requests_without_a_capability_and_of_other_formats() -> None:
    verifier = shipped(Keyring((b"x" * 32,)))
    for raw in (b"", NONE):
        assert verifier.judge(0, Right.READ, 0, 1, raw) == Refusal.NO_CAPABILITY
    for raw in (b"x", b"\x02" * CAPABILITY_BYTES, bytes(CAPABILITY_BYTES - 1), b"\x01" * 1000):
        assert verifier.judge(0, Right.READ, 0, 1, raw) == Refusal.FORGED_CAPABILITY


def test_a_cluster_that_was_built_again_begins_with_low_epochs() -> None:
    windows = Windows(TTL_MS)
    windows.answered(0, 900, windows.open())
    windows.answered(TTL_MS, 900, windows.open())
    assert not windows.fresh(TTL_MS, (3, 7))
    windows.answered(TTL_MS + 1, 3, windows.open())
    assert windows.fresh(TTL_MS + 1, (3, 1))
