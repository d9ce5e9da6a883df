"""The Linux calls that make the kernel end processes when no other process is left to do it."""

import ctypes
import fcntl
import os
import signal
import socket
import time

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37
_SIGEV_SIGNAL = 0
_TIMER_ABSTIME = 1
_SECOND = 1_000_000_000

_libc = ctypes.CDLL(None, use_errno=True)


class _SignalEvent(ctypes.Structure):
    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("rest", ctypes.c_int * 12),
    )


class _TimerSetting(ctypes.Structure):
    _fields_ = (("interval", ctypes.c_long * 2), ("value", ctypes.c_long * 2))


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _prctl(option: int, argument: object) -> None:
    unused = ctypes.c_ulong(0)
    _check(_libc.prctl(option, argument, unused, unused, unused))


def _timers() -> ctypes.CDLL:
    # Before 2.34 glibc kept its timers in a library of their own.
    has_them = hasattr(_libc, "timer_create")
    return _libc if has_them else ctypes.CDLL("librt.so.1", use_errno=True)


def set_subreaper(*, on: bool) -> None:
    """Make orphaned descendants become children of this process, or of init again."""
    _prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(on))


def is_subreaper() -> bool:
    """Return whether orphaned descendants become children of this process."""
    answer = ctypes.c_int()
    _prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(answer))
    return bool(answer.value)


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent dies. Kept over exec, not inherited."""
    _prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))


def tether(end: socket.socket, group: int) -> None:
    """Let the kernel kill every process of *group* when the other end of this pair is closed.

    It works while any process has *end* open, even a stopped one, as soon as the last holder of
    the other end dies. No byte must ever be sent through the pair: that would kill as well.
    """
    fcntl.fcntl(end, fcntl.F_SETOWN, -group)
    fcntl.fcntl(end, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(end, fcntl.F_SETFL, fcntl.fcntl(end, fcntl.F_GETFL) | os.O_ASYNC)


def untether(end: socket.socket) -> None:
    """Undo `tether` for this end."""
    fcntl.fcntl(end, fcntl.F_SETFL, fcntl.fcntl(end, fcntl.F_GETFL) & ~os.O_ASYNC)


class DeadMansSwitch:
    """A timer with which the kernel kills this process, stopped or not, unless moved on."""

    def __init__(self) -> None:
        """Make the switch; it does nothing until it is set."""
        self._library = _timers()
        self._timer = ctypes.c_void_p()
        event = _SignalEvent(signal=signal.SIGKILL, notify=_SIGEV_SIGNAL)
        _check(
            self._library.timer_create(
                time.CLOCK_BOOTTIME, ctypes.byref(event), ctypes.byref(self._timer)
            )
        )

    def set(self, moment: int) -> None:
        """Fire at *moment*, in nanoseconds since boot; at once if that has passed."""
        setting = _TimerSetting(value=divmod(max(moment, 1), _SECOND))
        self._apply(setting)

    def release(self) -> None:
        """Disarm the timer."""
        self._apply(_TimerSetting())

    def close(self) -> None:
        """Disarm the timer, and give it back to the system."""
        self.release()
        _check(self._library.timer_delete(self._timer))

    def _apply(self, setting: _TimerSetting) -> None:
        _check(
            self._library.timer_settime(self._timer, _TIMER_ABSTIME, ctypes.byref(setting), None)
        )
