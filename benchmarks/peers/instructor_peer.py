"""instructor: each output is a validated model, and what validation says goes back to the model. Nothing is kept."""

from __future__ import annotations

import asyncio
import sys
from importlib.metadata import version
from typing import Annotated

import instructor
import openai
from loop import TRIES, Work, find_issues, serve
from pydantic import AfterValidator, BaseModel, create_model


def check_colour(value: str) -> str:
    """The audit of every step, as a validator."""
    if issues := find_issues(value):
        raise ValueError(issues[0])
    return value


Colour = Annotated[str, AfterValidator(check_colour)]


class Seed(BaseModel):
    """One of the seed colours."""

    name: str
    hex: Colour
    reason: str


def build_models(work: Work) -> list[type[BaseModel]]:
    """The model of each step's output, with the names that its tool and its schema have."""
    models: list[type[BaseModel]] = []
    for requests in work.steps:
        tool = requests[0]["tools"][0]["function"]
        fields: dict[str, type] = dict.fromkeys(tool["parameters"]["properties"], Colour)
        if "colours" in fields:
            fields["colours"] = list[Seed]
        models.append(create_model(tool["name"], **{name: (kind, ...) for name, kind in fields.items()}))
    return models


def main(base_url: str, work_file: str) -> None:
    """Serve commands."""
    work = Work(work_file)
    models = build_models(work)
    with asyncio.Runner() as runner:
        client = openai.AsyncOpenAI(api_key="none", base_url=base_url)
        patched = instructor.from_openai(client)

        async def run_once(run_id: str) -> bool:
            for step, model in enumerate(models):
                request = work.find_request(step, 0)
                await patched.chat.completions.create(
                    model=request["model"], messages=request["messages"], response_model=model, max_retries=TRIES - 1
                )
            return True

        serve(run_once, runner, instructor=version("instructor"), openai=openai.__version__)
        runner.run(client.close())


if __name__ == "__main__":
    main(*sys.argv[1:3])
