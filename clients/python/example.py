"""Closes a database to everybody but the web, after looking at what that changes. Run it beside `trestle up`."""

from trestle import Problem, Trestle

controller = Trestle()
print("I am", controller.whoami()["name"])

pod = lambda name, app, ip: {
    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "example", "labels": {"app": app}},
    "spec": {"nodeName": "node-1"}, "status": {"podIP": ip},
}
controller.apply([pod("web-0", "web", "10.8.0.1"), pod("db-0", "db", "10.8.0.2"), pod("ci-0", "ci", "10.8.0.3")])

policy = """
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: db, namespace: example}
spec:
  podSelector: {matchLabels: {app: db}}
  ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 5432}]}]
"""
for change in controller.apply(policy, dry_run=True, reach=True)["reach"]["changes"]:
    print(change["from"], "to", change["to"], "would be", change["after"].get("ports", "closed"))
print("stored:", controller.apply(policy)["applied"][0]["outcome"])
print("ci to db:", controller.explain(source="example/ci-0", destination="example/db-0", port=5432)["verdict"])

controller.call("POST", "/tags/{tag}/applyMembers", tag="example", body={"ip": "10.8.0.2"})
print("tag:", [tag["name"] for tag in controller.tags() if tag["name"] == "example"])
try:
    controller.call("GET", "/tags/{tag}", tag="nobody")
except Problem as problem:
    print("refused:", problem.code)
