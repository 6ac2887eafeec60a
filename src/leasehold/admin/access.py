"""Who may do what on an HTTP port. Pure: the server collects the facts about a caller, and `AccessPolicy` decides.

Every route states the access that it needs (`admin/guard.py`). Without tokens and certificates, every client that
reaches the port may read, and only a process of this host that connected directly may operate. Operators with tokens
take that privilege from the host; readers with tokens close reading for all other clients.
"""

from __future__ import annotations

import enum
import hmac
import ipaddress
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from msgspec import Struct

from leasehold.base.errors import LeaseholdError, SettingError

TOKEN_CHARACTERS_MIN: Final = 16
TOKEN_FILE_LINES_MAX: Final = 1_000
SESSION_S: Final = 12 * 3600
PASS_S: Final = 30
ANY: Final = "*"
ANONYMOUS: Final = "anonymous"
COMMAND_HEADER: Final = "X-Leasehold-Command"  # a foreign page cannot send it without this port's permission
# A request with one of these has passed a proxy: the connection's address is not the caller's.
FORWARDING_HEADERS: Final = ("Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP")
# Programs that pass on the connections of others.
FORWARDING_PROGRAMS: Final = frozenset(
    ("docker-proxy", "envoy", "haproxy", "kubectl", "nginx", "rootlessport", "socat", "ssh", "sshd", "sshd-session")
)


class Access(enum.IntEnum):
    """The rights of a caller; each includes the ones before."""

    OPEN = 0  # probes: the status code, the role and its reason
    READ = 1
    OPERATE = 2


class AccessDenied(LeaseholdError):
    """The caller may not do this. `known` is set if the caller has an identity."""

    def __init__(self, message: str, *, known: bool) -> None:
        super().__init__(message)
        self.known = known


class TokenGrant(Struct, frozen=True):
    """One line of a token file."""

    access: Access
    name: str
    token: str


class LocalProcess(Struct, frozen=True):
    """The process on this host that has the other end of a loopback connection."""

    uid: int
    user: str
    pid: int = 0  # 0: this process may not look into it
    program: str = ""

    def __str__(self) -> str:
        return f"{self.user} ({self.program}, pid {self.pid})" if self.pid else self.user


class Caller(Struct, frozen=True):
    """The facts about a caller."""

    address: str  # HOST:PORT of its end of the connection
    token: str = ""
    session: str = ""  # the value of its session cookie
    now_s: int = 0  # wall clock, for the end of the session
    certificate: tuple[str, ...] = ()  # names in its verified certificate
    local: LocalProcess | None = None  # only if it connected directly, over loopback


class CallerIdentity(Struct, frozen=True):
    """Who a caller is, from where, and what it may do."""

    name: str
    address: str
    access: Access


class Order(Struct, frozen=True):
    """A command of an operator: what, by whom, from where."""

    name: str  # of the path, such as "pause" or "hosts remove"
    detail: str
    by: str
    address: str

    def __str__(self) -> str:
        detail = f" {self.detail}" if self.detail and self.detail != "{}" else ""
        return f"{self.name}{detail}, ordered by {self.by} from {self.address}"


class OrderRecorder(Protocol):
    """Writes orders into the log and the history."""

    async def record_order(self, order: Order) -> None:
        """Raises a `LeaseholdError` if it cannot be recorded: then it is not carried out."""
        ...


class AccessPolicy:
    """Decides the access of a caller. `certificates`: whether the port verifies client certificates."""

    def __init__(
        self,
        tokens: Iterable[TokenGrant] = (),
        *,
        operators: Iterable[str] = (),
        readers: Iterable[str] = (),
        certificates: bool = False,
    ) -> None:
        self._tokens = tuple(tokens)
        self._operators = frozenset(operators)
        self._readers = frozenset(readers)
        self._certificates = certificates

    @property
    def configured(self) -> bool:
        """Whether orders need an identity."""
        return bool(self._tokens) or self._certificates

    def _without_identity(self) -> Access:
        """Reading stays open if no token has the role `read`: a file with operators only protects orders only."""
        closed = self._certificates or any(grant.access is Access.READ for grant in self._tokens)
        return Access.OPEN if closed else Access.READ

    def identify(self, caller: Caller) -> CallerIdentity:
        """Raises `AccessDenied` for a token that is not in the file."""
        found = [
            self._by_certificate(caller),
            self._by_token(caller),
            self._by_session(caller),
            (ANONYMOUS, self._without_identity()),
        ]
        if caller.local and not self.configured:
            found.append((str(caller.local), Access.OPERATE))
        name, access = max(found, key=lambda pair: pair[1])
        return CallerIdentity(name, caller.address, access)

    def require(self, needed: Access, caller: Caller, path: str) -> CallerIdentity:
        """The caller's identity; raises `AccessDenied` if it may not do what this path does."""
        identity = self.identify(caller)
        if identity.access >= needed:
            return identity
        role = needed.name.lower()
        if not self.configured:
            raise AccessDenied(
                f"{path} needs the role '{role}', which only processes on this host have until tokens or certificates "
                "are configured: run the command on the node's host, or set --token-file (docs/security.md)",
                known=False,
            )
        if identity.name == ANONYMOUS:
            raise AccessDenied(
                f"{path} needs the role '{role}': send a token (--token-file, or 'Authorization: Bearer TOKEN'), or "
                "connect with a client certificate (--tls-cert, --tls-key)",
                known=False,
            )
        raise AccessDenied(
            f"{path} needs the role '{role}', and '{identity.name}' has only '{identity.access.name.lower()}'",
            known=True,
        )

    def _by_token(self, caller: Caller) -> tuple[str, Access]:
        if not caller.token or not self._tokens:
            return ANONYMOUS, Access.OPEN
        given = caller.token.encode()
        found = [grant for grant in self._tokens if hmac.compare_digest(grant.token.encode(), given)]
        if not found:
            raise AccessDenied("this token is not in the node's token file: it may have been replaced", known=False)
        return found[0].name, found[0].access

    def open_session(self, token: str, now_s: int) -> str:
        """Exchange a token for the value of a cookie. It is signed with the token: it ends when the token is replaced.

        Nothing is stored, so a session survives the worker that opened it.
        """
        self._by_token(Caller("", token))
        grant = next(
            (grant for grant in self._tokens if hmac.compare_digest(grant.token.encode(), token.encode())), None
        )
        if grant is None:
            raise AccessDenied("this node has no tokens: there is nothing to sign in to", known=False)
        return _signed(grant, "session", now_s + SESSION_S)

    def make_pass(self, caller: Caller) -> str:
        """A short-lived text that a page takes to the other nodes, to be signed in there too."""
        grant = self._signer(caller.session, "session", caller.now_s)
        if grant is None:
            raise AccessDenied("only a caller with a session gets a pass: sign in first", known=False)
        return _signed(grant, "pass", caller.now_s + PASS_S)

    def exchange_pass(self, given: str, now_s: int) -> str:
        """The value of a cookie for a pass that a node with the same token made."""
        grant = self._signer(given, "pass", now_s)
        if grant is None:
            raise AccessDenied(
                "this pass has expired, or was made with a token that this node does not have", known=False
            )
        return _signed(grant, "session", now_s + SESSION_S)

    def _signer(self, signed: str, purpose: str, now_s: int) -> TokenGrant | None:
        """The token with which a session or a pass was signed; None if it is not valid."""
        payload, _, given = signed.rpartition(".")
        name, _, end_s = payload.rpartition(".")
        if not end_s.isdecimal() or int(end_s) < now_s:
            return None
        valid = (
            grant
            for grant in self._tokens
            if grant.name == name and hmac.compare_digest(_signature(grant, purpose, payload), given)
        )
        return next(valid, None)

    def _by_session(self, caller: Caller) -> tuple[str, Access]:
        grant = self._signer(caller.session, "session", caller.now_s)
        return (ANONYMOUS, Access.OPEN) if grant is None else (grant.name, grant.access)

    def _by_certificate(self, caller: Caller) -> tuple[str, Access]:
        names = caller.certificate
        if operator := next((name for name in names if name in self._operators or ANY in self._operators), ""):
            return operator, Access.OPERATE
        if reader := next((name for name in names if name in self._readers or ANY in self._readers), ""):
            return reader, Access.READ
        return names[0] if names else ANONYMOUS, Access.OPEN


def _signed(grant: TokenGrant, purpose: str, end_s: int) -> str:
    payload = f"{grant.name}.{end_s}"
    return f"{payload}.{_signature(grant, purpose, payload)}"


def _signature(grant: TokenGrant, purpose: str, payload: str) -> str:
    return hmac.digest(grant.token.encode(), f"leasehold {purpose} {payload}".encode(), "sha256").hex()


def parse_tokens(text: str, file: str) -> tuple[TokenGrant, ...]:
    """Parse a token file: lines of `read|operate NAME TOKEN`; `#` begins a comment. Errors do not show tokens."""
    grants: list[TokenGrant] = []
    lines = text.splitlines()
    if len(lines) > TOKEN_FILE_LINES_MAX:
        raise SettingError(f"token_file = '{file}' has more than {TOKEN_FILE_LINES_MAX} lines")
    for number, line in enumerate(lines, 1):
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        if len(words) != 3 or words[0] not in ("read", "operate"):
            raise SettingError(f"token_file = '{file}', line {number}: write 'read NAME TOKEN' or 'operate NAME TOKEN'")
        if len(words[2]) < TOKEN_CHARACTERS_MIN:
            raise SettingError(
                f"token_file = '{file}', line {number}: the token of '{words[1]}' has less than "
                f"{TOKEN_CHARACTERS_MIN} characters; make one with: openssl rand -hex 32"
            )
        grants.append(TokenGrant(Access[words[0].upper()], words[1], words[2]))
    if not grants:
        raise SettingError(f"token_file = '{file}' has no token: write 'operate NAME TOKEN', one in each line")
    return tuple(grants)


def first_token(text: str) -> str:
    """The token of a client: the last word of the first line. So a line of a node's token file works too."""
    for line in text.splitlines():
        if words := line.split("#", 1)[0].split():
            return words[-1]
    return ""


def came_directly(headers: Mapping[str, str], peer_host: str, own_host: str) -> bool:
    """Whether a request came over loopback and through no proxy that reports itself."""
    return (
        _is_loopback(peer_host) and _is_loopback(own_host) and not any(name in headers for name in FORWARDING_HEADERS)
    )


def _is_loopback(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)
