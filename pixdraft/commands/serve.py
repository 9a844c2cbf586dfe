"""`pixdraft serve`: the cloud, with the full model behind a WebSocket."""

from __future__ import annotations

from typing import Annotated

import typer

from pixdraft.commands.options import Model, TokenEnv, bearer


def serve(
    model: Model = "emoji",
    host: Annotated[str, typer.Option(help="Address to listen at; any but loopback wants a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at; 0 takes a free one.")] = 8765,
    token_env: TokenEnv = None,
    max_sessions: Annotated[int, typer.Option(help="Pictures under way at once.")] = 16,
    max_sessions_per_client: Annotated[int, typer.Option(help="Of those, from one address.")] = 8,
    max_waiting: Annotated[int, typer.Option(help="Requests that may wait for the model.")] = 32,
    model_threads: Annotated[int, typer.Option(help="Forward passes at once.")] = 1,
    idle_timeout: Annotated[float, typer.Option(help="Seconds without a frame.", metavar="SECONDS")] = 120.0,
) -> None:
    """Serve the full model to devices until Ctrl-C or SIGTERM; then end what is under way."""
    import logging

    from pixdraft.cloud_stub.config import ServiceConfig
    from pixdraft.cloud_stub.serving import serve as run
    from pixdraft.models.registry import load_target

    config = ServiceConfig(
        host=host,
        port=port,
        token=bearer(token_env),
        max_sessions=max_sessions,
        max_sessions_per_client=max_sessions_per_client,
        max_waiting=max_waiting,
        model_threads=model_threads,
        idle_timeout_s=idle_timeout,
    )
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    target = load_target(model)
    run(target, config, ready=lambda url: typer.echo(f"serving {target.info.name} at {url}; Ctrl-C ends it"))
