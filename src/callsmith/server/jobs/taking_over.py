"""Jobs and approved calls whose server was stopped: jobs that may be repeated are started anew, the rest was interrupted."""

import asyncio
import logging

from callsmith.core.errors import CallsmithError
from callsmith.core.ports import Toolset
from callsmith.server.approvals import approvals
from callsmith.server.service import Service
from callsmith.tools.wrap import Filtered

_log = logging.getLogger(__name__)

_FIRST_ROUNDS = 6  # one after another as leases lapse: a server that was killed left its own behind
_SECONDS = 60.0  # between two later rounds, for other servers that share the store


async def take_over_jobs(service: Service) -> None:
    """Look for them, again and again."""
    rounds = 0
    while True:
        try:
            for subject in ("", *service.settings.keys):
                await service.tools.jobs.take_over(subject, _tools_of(service, subject))
                await service.answers.approvals(subject).interrupt_abandoned()
        except CallsmithError as error:  # a store that is away, or a job of a later release
            _log.warning("the jobs and calls of servers that were stopped cannot be looked for: %s", error)
        rounds += 1
        await asyncio.sleep(approvals.LEASE_SECONDS / 2 if rounds < _FIRST_ROUNDS else _SECONDS)


def _tools_of(service: Service, subject: str) -> Toolset | None:
    """The server's tools that a caller may use."""
    keys, tools = service.settings.keys, service.tools.toolset
    if tools is None or not keys:
        return tools
    return Filtered(tools, allow=keys[subject].tools) if subject in keys else None
