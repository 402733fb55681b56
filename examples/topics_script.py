"""Publishes texts and shows what comes, without asyncio: `python examples/topics_script.py URL TOPIC TEXT…`."""

import sys

import mpreg.sync


def main(url: str, topic: str, texts: list[str]) -> None:
    with mpreg.sync.connect(url) as client, client.subscribe(topic) as messages:
        for text in texts:
            client.publish(topic, text, ack=True)
        for _ in texts:
            message = messages.get(timeout=10)
            print(f"{message.topic}: {message.payload}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
