"""The autoscaler's side of the gRPC service."""

from __future__ import annotations

from typing import Any

import grpc

from poolhouse.nodegroups.protocol import SERVICE, messages


class Autoscaler:
    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    async def call(self, method: str, seconds: float = 30, **fields: Any) -> Any:
        """The answer. Raises the error of grpc."""
        request, answer = messages()[f"{method}Request"], messages()[f"{method}Response"]
        send = self._channel.unary_unary(
            f"/{SERVICE}/{method}",
            request_serializer=request.SerializeToString,
            response_deserializer=answer.FromString,
        )
        return await send(request(**fields), timeout=seconds)

    async def refused(self, method: str, **fields: Any) -> str:
        """The code and the text with which the call is refused."""
        try:
            found = await self.call(method, **fields)
        except grpc.aio.AioRpcError as error:
            return f"{error.code().name}: {error.details()}"
        raise AssertionError(f"{method} was answered: {found}")
