"""A client for Trestle's REST API, made of the API's own description.

    from trestle import Trestle
    controller = Trestle()                                   # the one that `trestle up` started, as the command line finds it
    controller.tags()                                        # GET /tags
    controller.call("POST", "/tags/{tag}/applyMembers", tag="db1", body={"ip": "10.0.0.5"})
    controller.apply(open("policy.yaml").read(), dry_run=True, reach=True)

Everything that `/openapi.json` describes can be called; what it does not know is refused here, before it is sent. Needs nothing
but Python 3.9. Not here: streams (`/events`), and gRPC, for which clients are made from `proto/`.
"""

import json
import os
import pathlib
import re
import ssl
import urllib.error
import urllib.parse
import urllib.request


class Problem(Exception):
    """What the controller refused, in its words; `code` is the gRPC code."""

    def __init__(self, code, status, detail):
        super().__init__(f"{detail} ({code})")
        self.code, self.status, self.detail = code, status, detail


def _context():
    path = os.environ.get("TRESTLE_CONTEXT")
    if not path:
        home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
        path = os.path.join(home, "trestle", "context.json")
    try:
        return json.loads(pathlib.Path(path).read_text())
    except FileNotFoundError:
        raise Problem("UNAVAILABLE", 0, f"no controller is known: {path} is not there; start one with `trestle up`") from None


class Trestle:
    """One controller. Without arguments, the one of the command line's context."""

    def __init__(self, url=None, ca=None, token=None):
        if url is None:
            context = _context()
            url, ca = context["http"], ca or context.get("ca")
            if token is None and context.get("token_file"):
                token = pathlib.Path(context["token_file"]).read_text().strip()
        self.url, self._token = url.rstrip("/"), token
        self._tls = ssl.create_default_context(cafile=ca) if self.url.startswith("https://") else None
        self._routes = None

    @property
    def routes(self):
        """Every route: `{(method, path): operation}`."""
        if self._routes is None:
            paths = self._send("GET", "/openapi.json", None, None)["paths"]
            self._routes = {(m.upper(), path): op for path, ops in paths.items() for m, op in ops.items() if isinstance(op, dict)}
        return self._routes

    def call(self, method, path, body=None, **values):
        """Calls a route as the description has it; names in its path and its query are keyword arguments."""
        operation = self.routes.get((method.upper(), path))
        if operation is None:
            raise ValueError(f"there is no route {method.upper()} {path}; look at .routes")
        inside = re.findall(r"\{(\w+)\}", path)
        known = {one["name"] for one in operation.get("parameters", []) if one["in"] == "query"}
        missing, strange = set(inside) - set(values), set(values) - set(inside) - known
        if missing or strange:
            raise ValueError(f"{method.upper()} {path}: missing {sorted(missing)}, not known {sorted(strange)}")
        for name in inside:
            path = path.replace("{%s}" % name, urllib.parse.quote(str(values.pop(name)), safe=""))
        plain = {name: str(value).lower() if isinstance(value, bool) else value for name, value in values.items() if value is not None}
        return self._send(method.upper(), path + ("?" + urllib.parse.urlencode(plain) if plain else ""), body, None)

    def apply(self, documents, **values):
        """Stores Kubernetes-style objects: YAML or JSON text, or a list of objects."""
        text = documents if isinstance(documents, str) else "\n---\n".join(json.dumps(one) for one in documents)
        query = urllib.parse.urlencode({name: str(value).lower() if isinstance(value, bool) else value for name, value in values.items()})
        return self._send("POST", "/objects" + ("?" + query if query else ""), text, "application/yaml")

    def __getattr__(self, name):
        """`controller.tags()` for routes like `GET /tags`."""
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda **values: self.call("GET", "/" + name, **values)

    def _send(self, method, path, body, kind):
        headers = {"accept": "application/json"}
        if self._token:
            headers["authorization"] = f"Bearer {self._token}"
        data = None
        if body is not None:
            headers["content-type"] = kind or "application/json"
            data = (body if kind else json.dumps(body)).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, context=self._tls) as reply:
                return json.loads(reply.read() or "null")
        except urllib.error.HTTPError as refused:
            try:
                told = json.loads(refused.read())
            except ValueError:
                told = {}
            raise Problem(told.get("code", "UNKNOWN"), refused.code, told.get("detail", refused.reason)) from None
        except urllib.error.URLError as failed:
            raise Problem("UNAVAILABLE", 0, f"{self.url} does not answer: {failed.reason}") from None
