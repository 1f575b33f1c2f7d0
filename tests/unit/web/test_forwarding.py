"""What of a request goes to another gateway: the caller's token, and the mark against loops."""

from __future__ import annotations

from tornado.httputil import HTTPHeaders, HTTPServerRequest, RequestStartLine

from kernel_gateway.web.forwarding import FORWARDED_HEADER, headers_to_send, was_forwarded


def request(**headers: str) -> HTTPServerRequest:
    named = HTTPHeaders({name.replace("_", "-"): value for name, value in headers.items()})
    line = RequestStartLine("POST", "/api/kernels/x/interrupt", "HTTP/1.1")
    return HTTPServerRequest(start_line=line, headers=named)


def test_what_is_sent_on_is_marked_and_carries_the_callers_token() -> None:
    received = request(
        Host="public.example", Authorization="token T", Content_Type="application/json"
    )

    sent = headers_to_send(received)

    assert not was_forwarded(received)
    assert sent[FORWARDED_HEADER] == "1"
    assert sent["Authorization"] == "token T"
    assert sent["Content-Type"] == "application/json"


def test_what_belongs_to_one_connection_or_one_origin_stays_here() -> None:
    received = request(
        Host="public.example",
        Origin="https://lab.example",
        Cookie="c=1",
        Connection="upgrade",
        Upgrade="websocket",
        Sec_WebSocket_Key="k",
        Sec_WebSocket_Extensions="permessage-deflate",
        Content_Length="3",
        Transfer_Encoding="chunked",
    )

    assert dict(headers_to_send(received).get_all()) == {FORWARDED_HEADER: "1"}
