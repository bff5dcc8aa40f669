"""Blocks of the guide may be pasted anywhere, and once more: they touch no run but their own, and lose no token."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.test_docs import find_blocks

GUIDE = "docs/api.md"


def test_a_token_that_is_not_made_again_is_kept(tmp_path: Path) -> None:
    (block,) = (code for info, code in find_blocks(GUIDE, "sh") if info == "on the server")
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    # As manage.py: the second token of that name is refused.
    python.write_text('#!/bin/sh\n[ -e made ] && { echo "There is one." >&2; exit 1; }\ntouch made\necho tf_0123\n')
    python.chmod(0o755)
    done = subprocess.run(
        ["bash", "-c", f"{block}{block}echo $TOOLFLOW_TOKEN; env | grep -c TOOLFLOW_TOKEN"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("tf_0123\n1\n", "There is one.\n")


def test_no_block_names_a_run_that_is_somebody_else_s() -> None:
    blocks = [code for language in ("sh", "python") for _, code in find_blocks(GUIDE, language)]
    named = re.compile(r"runs/\d+|toolflow (?:show|cancel|rerun) \d+")
    assert [found for code in blocks for found in named.findall(code)] == []
    assert sum("$RUN" in code for code in blocks) >= 4
