"""How an interpreter says that a composition breaks a contract."""

from __future__ import annotations

from rsag.records.proof import Contract


class Refuted(Exception):  # noqa: N818 - a finding, not an error
    """A contract is broken; the world it was found in is added by whoever chose the world."""

    def __init__(
        self,
        contract: Contract,
        message: str,
        *,
        rank: int | None = None,
        element: int | None = None,
        missing: tuple[str, ...] = (),
        extra: tuple[str, ...] = (),
        sites: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.contract, self.message = contract, message
        self.rank, self.element = rank, element
        self.missing, self.extra, self.sites = missing, extra, sites
