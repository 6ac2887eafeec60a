"""The decisions of a guardian: when its worker is dead, when to kill it, and when to release its leader key.

A guardian is the parent of one worker process. It notices a dead *process* immediately, where the lease alone would
take its full TTL. Two laws are kept here and nowhere else:

- the leader key is released only for a run that `waitpid` has **reaped**: a closed pipe proves nothing, and a worker
  that is still alive could still answer (schedule 7a);
- the guardian accepts connections only while its worker is not the primary; a connection with an open request is never
  moved (schedule 20). The connection forwarder keeps the second half for new connections, and
  `ha.connection_verdict` for those of a dead worker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from leasehold.base.settings import count, duration


@dataclass(frozen=True)
class GuardianSettings:
    """Section `[guardian]`: its timeouts and limits."""

    heartbeat_timeout_ms: int = duration(
        "2s", low="200ms", high="60s", help="time without a heartbeat after which a worker is killed"
    )
    start_timeout_ms: int = duration(
        "120s", low="5s", high="1h", help="heartbeat timeout while a worker starts, loads or catches up"
    )
    stop_timeout_ms: int = duration("10s", low="1s", high="5m", help="time that a stopped worker has to hand over")
    restart_min_ms: int = duration(
        "300ms", low="1ms", high="10s", help="pause before the first restart of a dead worker"
    )
    restart_max_ms: int = duration("10s", low="100ms", high="5m", help="longest pause between restarts")
    hold_timeout_ms: int = duration("20s", low="100ms", high="5m", help="longest time a connection waits for a primary")
    held_connections_max: int = count(
        4096,
        low=1,
        high=100_000,
        help="connections kept while there is no worker or no primary; further ones are reset",
    )


# --- events -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    """The guardian has its sockets and may start a worker."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; `beats` is the worker's heartbeat counter in the shared page. Sent about every 100 ms.

    `patient`: the worker loads or catches up. No client depends on it yet, and loading a snapshot of a million objects
    takes longer than a heartbeat may be late.
    """

    beats: int
    patient: bool = False


@dataclass(frozen=True, slots=True)
class Spawned:
    run: str


@dataclass(frozen=True, slots=True)
class SpawnFailed:
    """The host had no process, memory or descriptor left for a worker. Nothing was started."""

    reason: str


@dataclass(frozen=True, slots=True)
class Reaped:
    """`waitpid` returned this run: the only proof that it will not answer again."""

    run: str
    how: str  # for people: "killed by signal 9", "exit status 1"


@dataclass(frozen=True, slots=True)
class Released:
    """The reaped run has no leader key, or its lease must have expired: another worker may start."""

    run: str
    was_leader: bool


@dataclass(frozen=True, slots=True)
class WorkerServes:
    """The worker reports whether it is the primary and accepts connections itself."""

    run: str
    serving: bool


@dataclass(frozen=True, slots=True)
class StopRequested:
    """An operator stops this node (SIGTERM, Ctrl-C)."""


Event: TypeAlias = Start | Tick | Spawned | SpawnFailed | Reaped | Released | WorkerServes | StopRequested

# --- effects ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spawn:
    """Start a worker; answer with `Spawned` or `SpawnFailed`.

    `reaped` names earlier runs that are proven dead.
    """

    reaped: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Kill:
    """Send SIGKILL. The leader key is kept until `Reaped` follows."""

    run: str


@dataclass(frozen=True, slots=True)
class RequestStop:
    """Request that the worker hands over and exits."""

    run: str


@dataclass(frozen=True, slots=True)
class Release:
    """Delete the leader key if this run holds it, and write the end marker in the same transaction.

    Only issued after `Reaped`. Repeat until the store answers, or until the lease must have expired; then send
    `Released`. While the disk buffer holds records that this run acknowledged, repeat for longer.

    `hurry`: an operator is waiting for this node to stop. A healthy worker has already handed over; otherwise the store
    does not answer, and the lease will expire. Only a disk buffer with records justifies waiting longer.
    """

    run: str
    how: str
    hurry: bool = False


@dataclass(frozen=True, slots=True)
class AcceptConnections:
    """Accept connections in the guardian and hold or forward them, or leave that to the worker."""

    enabled: bool


@dataclass(frozen=True, slots=True)
class Say:
    """One sentence for the log."""

    sentence: str
    level: str = "info"


@dataclass(frozen=True, slots=True)
class Exit:
    """Everything is released: the guardian may exit."""


Effect: TypeAlias = Spawn | Kill | RequestStop | Release | AcceptConnections | Say | Exit

RESTART_FORGET_MS = 60_000  # a worker that lived this long resets the back-off
REAPED_REMEMBERED = 16


@dataclass(slots=True)
class Beats:
    """Detects a worker without heartbeats. Counts only time in which the guardian itself was running.

    Otherwise the first check after a stop of the whole host (SIGSTOP of both, a suspended VM) would find a long time
    without a heartbeat and kill a healthy worker.
    """

    timeout_ms: int
    start_timeout_ms: int
    last_beats: int = 0
    silent_ms: int = 0
    looked_ms: int = -1

    LOOK_MAX_MS = 500

    def look(self, now_ms: int, beats: int, patient: bool) -> bool:
        """Returns True if the worker has been silent for too long."""
        passed_ms = now_ms - self.looked_ms if self.looked_ms >= 0 else 0
        self.looked_ms = now_ms
        if beats != self.last_beats:
            self.last_beats, self.silent_ms = beats, 0
            return False
        self.silent_ms += min(passed_ms, self.LOOK_MAX_MS)
        strict = self.last_beats and not patient
        return self.silent_ms > (self.timeout_ms if strict else self.start_timeout_ms)


class GuardianMachine:
    """`handle(now_ms, event) -> effects`."""

    __slots__ = (
        "_beats",
        "_deaths_in_row",
        "_kill_at_ms",
        "_killed",
        "_reaped",
        "_releasing",
        "_settings",
        "_spawn_at_ms",
        "_spawned_ms",
        "_stopping",
        "run",
        "serving",
    )

    def __init__(self, settings: GuardianSettings) -> None:
        self._settings = settings
        self.run = ""  # the live worker's run, "" while there is none
        self.serving = False
        self._beats = self._fresh_beats()
        self._spawned_ms = 0
        self._spawn_at_ms = -1  # when to start the next worker; -1: not planned
        self._deaths_in_row = 0
        self._reaped: tuple[str, ...] = ()
        self._killed = False
        self._releasing = ""  # the reaped run whose key is being released
        self._stopping = False
        self._kill_at_ms = -1

    def handle(self, now_ms: int, event: Event) -> list[Effect]:
        match event:
            case Start():
                return [AcceptConnections(enabled=True), Spawn(reaped=())]
            case Tick(beats, patient):
                return self._tick(now_ms, beats, patient)
            case Spawned(run):
                self.run, self._spawned_ms, self._killed = run, now_ms, False
                self._beats = self._fresh_beats()
                return [RequestStop(run)] if self._stopping else []
            case SpawnFailed(reason):
                return self._on_spawn_failed(now_ms, reason)
            case Reaped(run, how):
                return self._on_reaped(now_ms, run, how)
            case Released(run, was_leader):
                return self._on_released(now_ms, run, was_leader)
            case WorkerServes(run, serving):
                return self._on_serves(run, serving)
            case StopRequested():
                return self._stop(now_ms)

    def _fresh_beats(self) -> Beats:
        return Beats(self._settings.heartbeat_timeout_ms, self._settings.start_timeout_ms)

    def _tick(self, now_ms: int, beats: int, patient: bool) -> list[Effect]:
        if not self.run:
            if self._spawn_at_ms >= 0 and now_ms >= self._spawn_at_ms:
                self._spawn_at_ms = -1
                return [Spawn(self._reaped)]
            return []
        silent = self._beats.look(now_ms, beats, patient)
        if self._killed:
            return []
        if self._kill_at_ms >= 0 and now_ms >= self._kill_at_ms:
            self._killed = True
            return [Say("the worker did not stop in time and is killed", "warning"), Kill(self.run)]
        if silent:
            self._killed = True
            sentence = f"the worker sent no heartbeat for {self._beats.silent_ms} ms and is killed"
            return [Say(sentence, "warning"), Kill(self.run)]
        return []

    def _on_reaped(self, now_ms: int, run: str, how: str) -> list[Effect]:
        if run != self.run:
            return []
        lived_ms = now_ms - self._spawned_ms
        self._deaths_in_row = 1 if lived_ms > RESTART_FORGET_MS else self._deaths_in_row + 1
        self._reaped = (*self._reaped, run)[-REAPED_REMEMBERED:]
        self.run, self.serving, self._killed, self._releasing = "", False, False, run
        sentence = f"the worker exited ({how}) after {lived_ms} ms; releasing its leader key if it has one"
        level = "info" if self._stopping else "warning"
        return [AcceptConnections(enabled=True), Release(run, how, hurry=self._stopping), Say(sentence, level)]

    def _on_released(self, now_ms: int, run: str, was_leader: bool) -> list[Effect]:
        if run != self._releasing:
            return []
        self._releasing = ""
        effects: list[Effect] = []
        if was_leader:
            effects.append(Say("deleted the dead worker's leader key; a standby can lead immediately"))
        if self._stopping:
            return [*effects, Exit()]
        self._plan_spawn(now_ms)
        return effects

    def _plan_spawn(self, now_ms: int) -> int:
        """Plan the next start after a pause that grows with every failure in a row. Returns the pause."""
        pause_ms = self._settings.restart_min_ms << min(self._deaths_in_row - 1, 20)
        pause_ms = min(pause_ms, self._settings.restart_max_ms)
        self._spawn_at_ms = now_ms + pause_ms
        return pause_ms

    def _on_spawn_failed(self, now_ms: int, reason: str) -> list[Effect]:
        """The guardian keeps accepting connections: they wait, and are forwarded as soon as another node leads."""
        if self._stopping:
            return [Exit()]
        self._deaths_in_row += 1
        pause_ms = self._plan_spawn(now_ms)
        return [Say(f"cannot start a worker ({reason}); trying again in {pause_ms} ms", "error")]

    def _on_serves(self, run: str, serving: bool) -> list[Effect]:
        if run != self.run or serving == self.serving:
            return []
        self.serving = serving
        return [AcceptConnections(enabled=not serving)]

    def _stop(self, now_ms: int) -> list[Effect]:
        if self._stopping:  # stopped twice: the operator is in a hurry, and the lease will free the key
            self._kill_at_ms = now_ms
            return [] if self.run else [Exit()]
        self._stopping = True
        self._kill_at_ms = now_ms + self._settings.stop_timeout_ms
        if self.run and not self._beats.last_beats:  # it is still loading: it has no state and has answered no client
            self._killed = True
            return [Say("stopping: the worker has not started yet and is killed"), Kill(self.run)]
        if self.run:
            return [Say("stopping: requesting a hand-over from the worker"), RequestStop(self.run)]
        return [] if self._releasing else [Exit()]
