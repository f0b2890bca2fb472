"""TLS in front of the simulators, for clients that talk to nothing else: tls.py URL CERTIFICATE KEY, answers with its own URL."""
import http.client
import http.server
import ssl
import sys
import urllib.parse

behind = urllib.parse.urlsplit(sys.argv[1]).netloc


class Front(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def pass_on(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {**self.headers, "x-forwarded-proto": "https"}
        connection = http.client.HTTPConnection(behind)
        connection.request(self.command, self.path, body, headers)
        answer = connection.getresponse()
        said = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        if answer.status != 204:
            self.send_header("content-length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)
        connection.close()

    do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = do_HEAD = pass_on

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Front)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[2], sys.argv[3])
server.socket = context.wrap_socket(server.socket, server_side=True)
print(f"https://localhost:{server.server_port}", flush=True)
server.serve_forever()
