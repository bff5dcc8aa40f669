"""Puts what lies beside the packages in a checkout into the wheel: templates, static files and guides.

Everything else about the package is in ``pyproject.toml``.
"""

from collections.abc import Iterator
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent

PARTS = {
    "templates": "toolflow_site/templates",
    "static": "toolflow_site/static",
    "docs/flow.schema.json": "flows/flow_file/flow.schema.json",
    "docs": "toolflow_site/docs",
}
"""Where files and folders of a checkout lie in an installed package. ``toolflow_site/settings.py`` finds them there."""


class BuildWithParts(build_py):
    """Builds the packages and lays the parts into them."""

    def run(self) -> None:
        """Build, then copy. An editable installation uses the checkout as it is."""
        super().run()
        if not self.editable_mode:
            for source, target in self._list_files():
                self.mkpath(str(target.parent))
                self.copy_file(str(source), str(target))

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """All files that a build makes."""
        return [*super().get_outputs(include_bytecode), *(str(target) for _, target in self._list_files())]

    def _list_files(self) -> Iterator[tuple[Path, Path]]:
        for name, place in PARTS.items():
            part = ROOT / name
            for file in [part] if part.is_file() else sorted(path for path in part.rglob("*") if path.is_file()):
                yield file, Path(self.build_lib) / place / file.relative_to(part)


if __name__ == "__main__":
    setup(cmdclass={"build_py": BuildWithParts})
