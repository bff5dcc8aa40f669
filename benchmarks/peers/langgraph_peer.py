"""LangGraph: a node for each step, an edge back to it when its audit says no, checkpoints in SQLite."""

from __future__ import annotations

import asyncio
import operator
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, TypedDict

import openai
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from loop import TRIES, Work, find_issues, read_output, serve


class State(TypedDict):
    """The attempts of a run so far: step, output and issues of each."""

    attempts: Annotated[list[dict[str, Any]], operator.add]


def build_graph(work: Work, client: openai.AsyncOpenAI) -> Any:
    """The graph, to be compiled with a checkpointer."""
    graph = StateGraph(State)

    def make_node(step: int) -> Any:
        async def node(state: State) -> dict[str, Any]:
            tried = sum(attempt["step"] == step for attempt in state["attempts"])
            output = read_output(await client.chat.completions.create(**work.find_request(step, tried)))
            return {"attempts": [{"step": step, "output": output, "issues": find_issues(output)}]}

        return node

    def make_route(step: int) -> Any:
        def route(state: State) -> str:
            tried = sum(attempt["step"] == step for attempt in state["attempts"])
            if state["attempts"][-1]["issues"] and tried < TRIES:
                return f"step-{step}"
            return f"step-{step + 1}" if step + 1 < len(work.steps) else str(END)

        return route

    for step in range(len(work.steps)):
        graph.add_node(f"step-{step}", make_node(step))
        targets = [f"step-{step}", f"step-{step + 1}" if step + 1 < len(work.steps) else END]
        graph.add_conditional_edges(f"step-{step}", make_route(step), targets)
    graph.add_edge(START, "step-0")
    return graph


def main(base_url: str, work_file: str, folder: str) -> None:
    """Serve commands."""
    work = Work(work_file)
    with asyncio.Runner() as runner:
        client = openai.AsyncOpenAI(api_key="none", base_url=base_url)
        opening = AsyncSqliteSaver.from_conn_string(str(Path(folder) / "langgraph.sqlite3"))
        saver = runner.run(opening.__aenter__())
        compiled = build_graph(work, client).compile(checkpointer=saver)

        async def run_once(run_id: str) -> bool:
            state = await compiled.ainvoke({"attempts": []}, {"configurable": {"thread_id": run_id}})
            return not state["attempts"][-1]["issues"]

        serve(run_once, runner, langgraph=version("langgraph"), openai=openai.__version__)
        runner.run(opening.__aexit__(None, None, None))
        runner.run(client.close())


if __name__ == "__main__":
    main(*sys.argv[1:4])
