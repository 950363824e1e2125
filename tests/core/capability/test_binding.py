"""What a tool is bound to on a bus."""

import pytest

from callsmith.core.capability.binding import Binding
from callsmith.core.errors import UsageError


@pytest.mark.parametrize("capability", ["", "rag.query@1.0", "@"])
def test_a_binding_names_a_capability_without_its_version(capability: str) -> None:
    with pytest.raises(UsageError, match="a binding names a capability"):
        Binding(capability, (1, 0))
