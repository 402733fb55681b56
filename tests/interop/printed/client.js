class MPREGClient {
  constructor(url, authToken = null) {
    this.url = url;
    this.authToken = authToken;
    this.websocket = null;
    this.requestId = 0;
    this.pendingRequests = new Map();
  }

  async connect() {
    return new Promise((resolve, reject) => {
      this.websocket = new WebSocket(this.url, [], {
        headers: this.authToken
          ? {
              Authorization: `Bearer ${this.authToken}`,
            }
          : {},
      });

      this.websocket.onopen = () => resolve();
      this.websocket.onerror = (error) => reject(error);
      this.websocket.onmessage = (event) => this.handleMessage(event);
    });
  }

  async call(functionName, ...args) {
    const requestId = `req-${++this.requestId}`;

    const message = {
      role: "rpc",
      u: requestId,
      cmds: [
        {
          name: "call",
          fun: functionName,
          args: args,
          kwargs: {},
          locs: [],
        },
      ],
    };

    return new Promise((resolve, reject) => {
      this.pendingRequests.set(requestId, { resolve, reject });
      this.websocket.send(JSON.stringify(message));
    });
  }

  async publish(topic, payload, headers = {}) {
    const requestId = `pub-${++this.requestId}`;

    const message = {
      role: "pubsub-publish",
      u: requestId,
      message: {
        topic: topic,
        payload: payload,
        timestamp: Date.now() / 1000,
        message_id: `msg-${Math.random().toString(36).substr(2, 9)}`,
        publisher: "javascript-client",
        headers: headers,
      },
    };

    this.websocket.send(JSON.stringify(message));
  }

  async subscribe(patterns, callback) {
    const subscriptionId = `sub-${Math.random().toString(36).substr(2, 9)}`;
    const requestId = `sub-${++this.requestId}`;

    const message = {
      role: "pubsub-subscribe",
      u: requestId,
      subscription: {
        subscription_id: subscriptionId,
        patterns: patterns.map((p) => ({ pattern: p, exact_match: false })),
        subscriber: "javascript-client",
        created_at: Date.now() / 1000,
        get_backlog: true,
        backlog_seconds: 300,
      },
    };

    this.websocket.send(JSON.stringify(message));
    this.subscriptionCallbacks = this.subscriptionCallbacks || new Map();
    this.subscriptionCallbacks.set(subscriptionId, callback);

    return subscriptionId;
  }

  handleMessage(event) {
    const data = JSON.parse(event.data);

    if (data.role === "rpc-response") {
      const pending = this.pendingRequests.get(data.u);
      if (pending) {
        this.pendingRequests.delete(data.u);
        if (data.error) {
          pending.reject(new Error(`RPC Error: ${JSON.stringify(data.error)}`));
        } else {
          pending.resolve(data.r);
        }
      }
    } else if (data.role === "pubsub-notification") {
      const callback = this.subscriptionCallbacks?.get(data.subscription_id);
      if (callback) {
        callback(data.message);
      }
    }
  }
}

// Usage example
async function main() {
  const client = new MPREGClient("ws://localhost:6666", "your-auth-token");
  await client.connect();

  // RPC call
  try {
    const result = await client.call("compute_fibonacci", 10);
    console.log(`Fibonacci(10) = ${result}`);
  } catch (error) {
    console.error("RPC Error:", error);
  }

  // Pub/Sub
  await client.publish("events.user.login", {
    user_id: "user123",
    timestamp: Date.now() / 1000,
  });

  await client.subscribe(["events.user.*"], (message) => {
    console.log("Received:", message);
  });
}

main().catch(console.error);
