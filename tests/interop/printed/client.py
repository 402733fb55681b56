import asyncio
import json
import websockets
from typing import Any, Dict

class MPREGClient:
    def __init__(self, url: str, auth_token: str = None):
        self.url = url
        self.auth_token = auth_token
        self.websocket = None
        self.request_id = 0

    async def connect(self):
        headers = {}
        if self.auth_token:
            headers["Authorization"] = f"Bearer {self.auth_token}"

        self.websocket = await websockets.connect(
            self.url,
            extra_headers=headers
        )

    async def call(self, function: str, *args, **kwargs) -> Any:
        request_id = f"req-{self.request_id}"
        self.request_id += 1

        message = {
            "role": "rpc",
            "u": request_id,
            "cmds": [{
                "name": "call",
                "fun": function,
                "args": args,
                "kwargs": kwargs,
                "locs": []
            }]
        }

        await self.websocket.send(json.dumps(message))

        response = await self.websocket.recv()
        data = json.loads(response)

        if data.get("error"):
            raise Exception(f"RPC Error: {data['error']}")

        return data.get("r")

    async def publish(self, topic: str, payload: Any, **headers) -> None:
        request_id = f"pub-{self.request_id}"
        self.request_id += 1

        message = {
            "role": "pubsub-publish",
            "u": request_id,
            "message": {
                "topic": topic,
                "payload": payload,
                "timestamp": time.time(),
                "message_id": f"msg-{uuid.uuid4()}",
                "publisher": "python-client",
                "headers": headers
            }
        }

        await self.websocket.send(json.dumps(message))

    async def subscribe(self, patterns: list[str], callback) -> str:
        subscription_id = f"sub-{uuid.uuid4()}"
        request_id = f"sub-{self.request_id}"
        self.request_id += 1

        message = {
            "role": "pubsub-subscribe",
            "u": request_id,
            "subscription": {
                "subscription_id": subscription_id,
                "patterns": [
                    {"pattern": p, "exact_match": False}
                    for p in patterns
                ],
                "subscriber": "python-client",
                "created_at": time.time(),
                "get_backlog": True,
                "backlog_seconds": 300
            }
        }

        await self.websocket.send(json.dumps(message))

        # Handle notifications in background
        asyncio.create_task(self._notification_handler(callback))

        return subscription_id

    async def _notification_handler(self, callback):
        async for message in self.websocket:
            data = json.loads(message)
            if data.get("role") == "pubsub-notification":
                await callback(data["message"])

# Usage example
async def main():
    client = MPREGClient("ws://localhost:6666", "your-auth-token")
    await client.connect()

    # RPC call
    result = await client.call("compute_fibonacci", 10)
    print(f"Fibonacci(10) = {result}")

    # Pub/Sub
    await client.publish("events.user.login", {
        "user_id": "user123",
        "timestamp": time.time()
    })

    def handle_notification(message):
        print(f"Received: {message}")

    await client.subscribe(["events.user.*"], handle_notification)

    # Keep connection alive
    await asyncio.sleep(60)

if __name__ == "__main__":
    asyncio.run(main())
