package main

import (
    "encoding/json"
    "fmt"
    "log"
    "net/url"
    "time"

    "github.com/gorilla/websocket"
)

type MPREGClient struct {
    conn      *websocket.Conn
    requestID int
}

type RPCRequest struct {
    Role string      `json:"role"`
    U    string      `json:"u"`
    Cmds []RPCCommand `json:"cmds"`
}

type RPCCommand struct {
    Name   string                 `json:"name"`
    Fun    string                 `json:"fun"`
    Args   []interface{}          `json:"args"`
    Kwargs map[string]interface{} `json:"kwargs"`
    Locs   []string               `json:"locs"`
}

type RPCResponse struct {
    Role  string      `json:"role"`
    U     string      `json:"u"`
    R     interface{} `json:"r"`
    Error interface{} `json:"error"`
}

func NewMPREGClient(urlStr, authToken string) (*MPREGClient, error) {
    u, err := url.Parse(urlStr)
    if err != nil {
        return nil, err
    }

    headers := make(map[string][]string)
    if authToken != "" {
        headers["Authorization"] = []string{"Bearer " + authToken}
    }

    conn, _, err := websocket.DefaultDialer.Dial(u.String(), headers)
    if err != nil {
        return nil, err
    }

    return &MPREGClient{
        conn:      conn,
        requestID: 0,
    }, nil
}

func (c *MPREGClient) Call(function string, args ...interface{}) (interface{}, error) {
    c.requestID++
    requestID := fmt.Sprintf("req-%d", c.requestID)

    request := RPCRequest{
        Role: "rpc",
        U:    requestID,
        Cmds: []RPCCommand{{
            Name:   "call",
            Fun:    function,
            Args:   args,
            Kwargs: make(map[string]interface{}),
            Locs:   []string{},
        }},
    }

    if err := c.conn.WriteJSON(request); err != nil {
        return nil, err
    }

    var response RPCResponse
    if err := c.conn.ReadJSON(&response); err != nil {
        return nil, err
    }

    if response.Error != nil {
        return nil, fmt.Errorf("RPC Error: %v", response.Error)
    }

    return response.R, nil
}

func main() {
    client, err := NewMPREGClient("ws://localhost:6666", "your-auth-token")
    if err != nil {
        log.Fatal(err)
    }
    defer client.conn.Close()

    // Call remote function
    result, err := client.Call("compute_fibonacci", 10)
    if err != nil {
        log.Fatal(err)
    }

    fmt.Printf("Fibonacci(10) = %v\n", result)
}
