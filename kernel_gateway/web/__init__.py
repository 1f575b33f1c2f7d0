"""The only place that knows jupyter_server: managers, websocket, REST, identity."""
