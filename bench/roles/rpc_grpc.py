"""grpc.aio: one unary method over protobuf strings."""

from __future__ import annotations

from typing import Any

import grpc
from google.protobuf.wrappers_pb2 import StringValue

from bench.load import obey
from bench.role import Orders
from bench.rpc import TEXT


async def serve(orders: Orders) -> None:
    async def same(request: Any, _context: Any) -> Any:
        return StringValue(value=request.value)

    method = grpc.unary_unary_rpc_method_handler(
        same, request_deserializer=StringValue.FromString, response_serializer=StringValue.SerializeToString
    )
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Bench", {"same": method}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    orders.answer(port=port)
    await orders.ended()
    await server.stop(None)


async def ask(orders: Orders, port: int) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        same = channel.unary_unary(
            "/Bench/same",
            request_serializer=StringValue.SerializeToString,
            response_deserializer=StringValue.FromString,
        )

        async def call() -> None:
            assert (await same(StringValue(value=TEXT))).value == TEXT

        orders.answer(ready=True)
        await obey(orders, call)
