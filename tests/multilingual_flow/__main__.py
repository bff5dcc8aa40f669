"""Make the runs in the installation that the environment names."""

from __future__ import annotations

import os

from tests.engine.model_server import ModelServer


def main() -> None:
    """Print the numbers of the runs."""
    with ModelServer() as provider:
        os.environ |= {"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "none"}
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "toolflow_site.settings")
        import django

        django.setup()
        from tests.multilingual_flow import make_runs

        print(*make_runs(provider))  # noqa: T201  # a command's output


if __name__ == "__main__":
    main()
