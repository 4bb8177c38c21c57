"""Calls of a driver library through its Python binding, checked: every failure is an error with the driver's own words.

Both bindings return tuples, the error code first; an absent library, or a function that it lacks, raises RuntimeError, and a code
that the binding does not know ValueError. HIP took CUDA's numbers for most codes, so one table says what to do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from octavo.engine.errors import PlatformError

OUT_OF_MEMORY = 2
NO_DEVICE, INVALID_DEVICE = 100, 101
NOT_FOUND = 500
_AGAIN = (
    "the device can no longer be used by this process; start it again, and if it comes back report it with the output "
    "of `octavo doctor --json`"
)
#: code -> what to do, where one of the two drivers uses it
ADVICE = {
    OUT_OF_MEMORY: "end what else uses the device, or ask for less",
    3: "the driver could not be started; see the system's log (dmesg)",
    35: "the driver is older than the library needs; update it",
    46: "another process holds the device for itself; see the vendor's tool (nvidia-smi, amd-smi)",
    NO_DEVICE: "no device can be seen by this process",
    INVALID_DEVICE: "there is no device of this number",
    209: "the code object is for another chip; `octavo doctor` lists those that fit",
    218: "the code object is not one, or is damaged; install it again",
    300: "the code object is damaged or older than the driver reads; install it again",
    NOT_FOUND: "the code object is of another version; install octavo and its code objects in one version",
    701: "the kernel needs more registers or shared memory than the chip has; report it",
    700: _AGAIN,
    710: _AGAIN,
    719: _AGAIN,
    214: "the device's memory has errors that cannot be corrected; see the vendor's tool (nvidia-smi, amd-smi)",
    802: "the system's fabric manager is not running; start it",
    803: "driver and kernel module are of different versions; restart the machine",
    804: "the compatibility package does not support this device; use the driver's own library",
}


class DriverError(PlatformError):
    """A call that failed. `call`: its name; `code`: the driver's number, -1 where the call could not be made at all."""

    def __init__(self, message: str, call: str, code: int = -1) -> None:
        super().__init__(message)
        self.call = call
        self.code = code


def as_text(value: Any) -> str:
    """A C string as a binding gives it: str, bytes up to the first zero, or an object of its own."""
    if isinstance(value, bytes):
        return value.split(b"\0")[0].decode(errors="replace")
    if isinstance(value, str):
        return value.split("\0")[0]
    return "" if value is None else as_text(value.decode() if hasattr(value, "decode") else str(value))


class Calls:
    """The functions of one binding, checked. `explain(code)`: the driver's words for an error code of its own type."""

    def __init__(self, api: Any, where: str, explain: Callable[[Any], str]) -> None:
        self.api = api
        self.where = where  # what messages call the device or the driver
        self._explain = explain

    def bind(self, name: str) -> Callable[..., Any]:
        """The function, returning what it returns beside its code: None, one value, or a tuple. DriverError if it fails."""
        function = getattr(self.api, name, None)
        if function is None:
            raise DriverError(f"{self.where}: the driver's library has no {name}; install its newest version", name)

        def checked(*arguments: Any) -> Any:
            try:
                result = function(*arguments)
            except (RuntimeError, ValueError, OSError) as error:
                raise self._failed(name, error) from error
            if result[0]:
                raise self.failed(name, result[0])
            return result[1] if len(result) == 2 else result[1:]

        return checked

    def call(self, name: str, *arguments: Any) -> Any:
        """One call of a function that is not worth to be bound."""
        return self.bind(name)(*arguments)

    def failed(self, name: str, code: Any) -> DriverError:
        """The error of a call that returned `code`."""
        try:
            words = self._explain(code)
        except Exception as error:  # the words are a courtesy; the number is what counts
            words = f"no words for it: {error}"
        number = int(code)
        advice = ADVICE.get(number, "`octavo doctor` shows what was found")
        return DriverError(f"{self.where}: {name} failed: {words} ({number}); {advice}", name, number)

    def _failed(self, name: str, error: Exception) -> DriverError:
        """The error of a call that the binding could not make, or whose code it does not know."""
        return DriverError(f"{self.where}: {name} failed: {str(error).rstrip('. ')}", name)
