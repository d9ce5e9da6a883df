"""Embedded stores whose leases last too long, or whose fences are compared too early."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import fields, replace

from typing_extensions import override

from kip30.driver import Context
from kip30.driver.kit.futures import failed
from kip30.driver.lease import Lease
from kip30.driver.records import Version, Write
from kip30.errors import FencedError
from kip30_backends.embedded import EmbeddedBackend, EmbeddedSettings

from .mutation import mutate

_EPOCH = "SELECT max(epoch) FROM service WHERE scope = ?"


class FenceComparedFirst(EmbeddedBackend):
    """Compares a fence, and then writes without it."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.storage, "write", self._write)

    def _write(self, write: Callable[[Write], Future[Version]], one: Write) -> Future[Version]:
        if one.fence is not None and one.fence.epoch < self._epoch(one.fence.service):
            return failed(FencedError("tried out"))
        return write(one._replace(fence=None))

    def _epoch(self, service: str) -> int:
        newest: int = self._resources.database.read(
            lambda connection: connection.execute(_EPOCH, (service.encode(),)).fetchone()[0]
        )
        return newest


class DatesLeaseFromAnswer(EmbeddedBackend):
    """Believes in a new lease from when the answer came."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(_having(_LateContext, context), settings)


class DatesRenewalFromAnswer(EmbeddedBackend):
    """Believes in a renewal from when the answer came."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(_having(_LateRenewalContext, context), settings)


class LastsLonger(EmbeddedBackend):
    """Believes in a lease for one and a half timeouts."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(_having(_LongContext, context), settings)


class WithoutMargin(EmbeddedBackend):
    """Believes in a lease until the store ends it."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(replace(context, margin_seconds=0), settings)


class WholeSecondsInStore(EmbeddedBackend):
    """Has the store count sessions in whole seconds, and believes in the rest of the last one."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        sessions = self._resources.sessions
        whole = replace(context, session_timeout_seconds=int(context.session_timeout_seconds))
        vars(sessions)["_context"] = _LeasesOf(context, whole)


class WholeSecondsGranted(EmbeddedBackend):
    """Grants whole seconds of what was asked for."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        seconds = float(int(context.session_timeout_seconds))
        super().__init__(replace(context, session_timeout_seconds=seconds), settings)


class _LeasesOf:
    """One context, but for the leases, which are those of another."""

    def __init__(self, leases: Context, other: Context) -> None:
        self.lease = leases.lease
        self._other = other

    def __getattr__(self, name: str) -> object:
        return getattr(self._other, name)


class _LateLease(Lease):
    @override
    def extend(self, sent_at: float) -> bool:
        return super().extend(self._clock.now())


class _LateContext(Context):
    @override
    def lease(self, *, sent_at: float, timeout_seconds: float | None = None) -> Lease:
        return Context.lease(self, sent_at=self.clock.now(), timeout_seconds=timeout_seconds)


class _LateRenewalContext(Context):
    @override
    def lease(self, *, sent_at: float, timeout_seconds: float | None = None) -> Lease:
        return _LateLease(
            self.clock,
            sent_at=sent_at,
            timeout_seconds=timeout_seconds or self.session_timeout_seconds,
            margin_seconds=self.margin_seconds,
        )


class _LongContext(Context):
    @override
    def lease(self, *, sent_at: float, timeout_seconds: float | None = None) -> Lease:
        return Lease(
            self.clock,
            sent_at=sent_at,
            timeout_seconds=1.5 * (timeout_seconds or self.session_timeout_seconds),
            margin_seconds=self.margin_seconds,
        )


def _having(kind: type[Context], context: Context) -> Context:
    return kind(**{one.name: getattr(context, one.name) for one in fields(context)})
