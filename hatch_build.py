"""Publish the README with absolute links: in a checkout, they lead to files, and the package index has none of them."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Readme(MetadataHookInterface):
    """Sets the README of the package."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the README to the metadata."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": publish(text)}


def publish(text: str) -> str:
    """Return a README whose links lead to pages of the site if they lead to guides, and to the repository otherwise."""
    site = "https://outreach-async.github.io/outreach_async"
    text = re.sub(r"\]\((outreach_async[\w/]*?)(?:/__init__)?\.py", rf"]({site}/\1.html", text)
    repository = "outreach-async/outreach_async"
    text = re.sub(r"(?<=\]: )(?=[\w.]+/)", f"https://raw.githubusercontent.com/{repository}/main/", text)
    return re.sub(r"(?<=\]\()(?!https:)", f"https://github.com/{repository}/blob/main/", text)
