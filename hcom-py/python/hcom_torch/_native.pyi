"""The native module: see hcom-py/src."""

from typing import Any

__version__: str

class CollectiveError(RuntimeError):
    """A collective failed on some rank of its group. Every later collective of the group fails alike."""

class Listener:
    """A socket at which the first rank of a group waits for the others."""

    def __init__(self) -> None: ...
    @property
    def port(self) -> int: ...

class World:
    """This rank's place among the members of a group."""

    @staticmethod
    def meet(
        name: str,
        rank: int,
        size: int,
        device: int,
        host: str,
        port: int,
        job: str,
        listener: Listener | None = None,
        library: str | None = None,
        pair: bool = False,
    ) -> World: ...
    def check(self, calls: list[tuple[str, list[int]]]) -> None: ...
    def start(self, spec: str, sizes: list[int], inputs: list[int]) -> int: ...
    def wait(self, ticket: int) -> list[Any]: ...
