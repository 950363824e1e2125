"""Lists the versions of the documentation in a folder, for the switch on its pages: `python docs_versions.py site`.

Each version is a folder there (`site/0.1`). The root leads to the newest.
"""

import json
import sys
from pathlib import Path


def main(site: Path) -> None:
    folders = (one.name for one in site.iterdir() if one.is_dir() and one.name.replace(".", "").isdigit())
    versions = sorted(folders, key=lambda name: [int(part) for part in name.split(".")], reverse=True)
    listed = [{"version": name, "title": name, "aliases": ["latest"] if name == versions[0] else []} for name in versions]
    (site / "versions.json").write_text(json.dumps(listed, indent=1) + "\n")
    (site / "index.html").write_text(f'<!doctype html><meta http-equiv="refresh" content="0; url={versions[0]}/">\n')


if __name__ == "__main__":
    main(Path(sys.argv[1]))
