"""A bill of materials (CycloneDX) in the wheel, at `.dist-info/sboms/` (PEP 770), from what pyproject.toml says."""

import json
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.requirements import Requirement


class SbomHook(BuildHookInterface):
    """Writes the bill while the wheel is built, and removes it afterwards."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the file, and have it put into the wheel."""
        if version == "editable":
            return
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name, "callsmith.cdx.json")
        path.write_text(json.dumps(self._list_materials(), indent=1) + "\n", "utf-8")
        build_data["sbom_files"].append(str(path))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what is in the wheel now."""
        if version != "editable":
            self._folder.cleanup()

    def _list_materials(self) -> dict[str, Any]:
        """The package and what it asks for. Nothing of others is bundled, so that a package has no version here but the
        range that is taken; which one is installed is known to whoever installs it. The same source gives the same bytes."""
        core = self.metadata.core
        own = f"pkg:pypi/{core.name}@{self.metadata.version}"
        required: list[tuple[str, str]] = [(line, "") for line in core.dependencies]
        required += [(line, extra) for extra, lines in core.optional_dependencies.items() for line in lines]
        components: dict[str, dict[str, Any]] = {}
        for line, extra in required:
            requirement = Requirement(line)
            name = requirement.name.lower().replace("_", "-")
            component = components.setdefault(
                name,
                {
                    "type": "library",
                    "bom-ref": f"pkg:pypi/{name}",
                    "name": name,
                    "purl": f"pkg:pypi/{name}",
                    "scope": "optional" if extra else "required",
                    "properties": [],
                },
            )
            value = line + (f" with the extra {extra}" if extra else "")
            component["properties"].append({"name": "callsmith:requires", "value": value})
        return {
            "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "version": 1,
            "metadata": {
                "component": {
                    "type": "library",
                    "bom-ref": own,
                    "name": core.name,
                    "version": str(self.metadata.version),
                    "description": core.description,
                    "licenses": [{"license": {"id": core.license_expression or "Apache-2.0"}}],
                    "purl": own,
                }
            },
            "components": [components[name] for name in sorted(components)],
            "dependencies": [{"ref": own, "dependsOn": [f"pkg:pypi/{name}" for name in sorted(components)]}],
        }
