"""Passes HTTP requests on and writes each down as a line of JSON: method, path, headers that matter, body and status.

Usage: record.py PORT TARGET_PORT FILE
"""

import http.client
import http.server
import json
import sys

PORT, TARGET, FILE = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]


class Handler(http.server.BaseHTTPRequestHandler):
    def handle_any(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        onward = http.client.HTTPConnection("127.0.0.1", TARGET)
        headers = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "connection", "accept-encoding")}
        onward.request(self.command, self.path, body, headers)
        reply = onward.getresponse()
        answer = reply.read()
        line = {"method": self.command, "path": self.path, "type": self.headers.get("Content-Type"), "body": body.decode(), "status": reply.status}
        with open(FILE, "a") as out:
            out.write(json.dumps(line) + "\n")
        self.send_response(reply.status)
        self.send_header("Content-Type", reply.getheader("Content-Type") or "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_PUT = do_POST = do_DELETE = handle_any

    def log_message(self, *_):
        pass


http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
