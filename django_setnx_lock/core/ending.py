"""What may put the release of a lock off, as until the end of a transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from .grant import Grant
    from .held import Held
    from .target import Target


class Ending(Protocol):
    """Asked by each release of a lock that is not awaited.

    What is put off is held and renewed as before, until the ending calls ``release_now()``.
    """

    def puts_off(self, held: Held) -> bool:
        """Whether ``held`` is to be let go later; then it has to be kept alive and let go."""
        ...

    def kept(self, target: Target) -> Grant | None:
        """The handle that took ``target``, if the caller let it go and all that is put off."""
        ...
