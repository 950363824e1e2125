"""Recovery of jobs and approved calls whose server was stopped: what may be repeated starts anew, the rest is interrupted."""

import asyncio
import logging

from callsmith.core.errors import CallsmithError
from callsmith.core.ports import Toolset
from callsmith.server.service import Service
from callsmith.server.store import leases
from callsmith.tools.wrap import Filtered

_log = logging.getLogger(__name__)

_FIRST_ROUNDS = 6  # one after another as leases lapse: a server that was killed left its own behind
_SECONDS = 60.0  # between two later rounds, for other servers that share the store


async def recover_jobs(service: Service) -> None:
    """Look for jobs and calls of servers that were stopped, again and again, and recover them."""
    rounds = 0
    while True:
        try:
            for subject in ("", *service.settings.keys):
                await service.tools.jobs.take_over(subject, _tools_of(service, subject))
                await service.answers.approvals(subject).interrupt_abandoned()
        except CallsmithError as error:  # the store is unreachable, or a job of a later release
            _log.warning("cannot look for jobs and calls of servers that were stopped: %s", error)
        rounds += 1
        await asyncio.sleep(leases.LEASE_SECONDS / 2 if rounds < _FIRST_ROUNDS else _SECONDS)


def _tools_of(service: Service, subject: str) -> Toolset | None:
    """The server's tools that a caller may use."""
    keys, tools = service.settings.keys, service.tools.toolset
    if tools is None or not keys:
        return tools
    return Filtered(tools, allow=keys[subject].tools) if subject in keys else None
