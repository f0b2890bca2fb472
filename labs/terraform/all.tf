# Every kind and every data source, in one configuration.
terraform {
  required_providers {
    trestle = { source = "trestle/trestle" }
  }
}

provider "trestle" {
  timeout = "3m"
}

resource "trestle_namespace" "n" {
  name        = "tf-n"
  deployments = { a = "account-1" }
}

resource "trestle_tag" "leaf" {
  name = "leaf"
  ip   = "203.0.113.5/32" # which is 203.0.113.5
}

resource "trestle_tag" "group" {
  name    = "group"
  members = [trestle_tag.leaf.name, "192.0.2.0/24"]
}

resource "trestle_resource" "web" {
  name        = "default.a.web"
  description = "west"
}

resource "trestle_resource" "db" {
  name        = "default.b.db"
  description = "east"
}

resource "trestle_rule" "names" {
  resource  = trestle_resource.web.name
  name      = "names"
  direction = "out"
  protocol  = "17" # which is udp
  port      = "53"
  peers     = [trestle_tag.group.name, "9.9.9.9/32"]
}

resource "trestle_rule" "on_tag" {
  tag      = trestle_tag.group.name
  name     = "ssh"
  protocol = "tcp"
  port     = "22"
  peers    = ["198.51.100.0/24", "2001:DB8::/32"]
}

resource "trestle_link" "l" {
  a          = "default.b"
  b          = "default.a"
  depends_on = [trestle_resource.web, trestle_resource.db]
}

resource "trestle_permission" "p" {
  from    = "resource:${trestle_resource.web.name}"
  to      = "resource:${trestle_resource.db.name}"
  traffic = ["tcp 5432"]
  build   = true
}

resource "trestle_object" "policy" {
  manifest = <<-YAML
    # A comment, and an order of keys of one's own.
    kind: NetworkPolicy
    apiVersion: networking.k8s.io/v1
    metadata: {name: tf, namespace: shop}
    spec: {podSelector: {}}
  YAML
}

resource "trestle_object" "service" { # of which the controller fills in addresses and ports
  manifest = yamlencode({
    apiVersion = "v1", kind = "Service", metadata = { name = "tf", namespace = "shop" },
    spec       = { type = "NodePort", selector = { app = "web" }, ports = [{ port = 80 }] }
  })
}

resource "trestle_ticket" "t" {
  limit                 = "1Gi"
  lifetime              = "2h"
  operations_per_second = 100
}

resource "trestle_join_token" "t" {
  tags   = ["edge"]
  uses   = 2
  labels = { zone = "edge" }
}

data "trestle_tag" "group" { name = trestle_tag.group.name }
data "trestle_tags" "all" { depends_on = [trestle_tag.group] }
data "trestle_resource" "web" { name = trestle_resource.web.name }
data "trestle_resources" "all" { depends_on = [trestle_resource.web, trestle_resource.db] }
data "trestle_rules" "web" {
  resource   = trestle_resource.web.name
  depends_on = [trestle_rule.names]
}
data "trestle_links" "all" { depends_on = [trestle_link.l] }
data "trestle_clouds" "all" {}
data "trestle_permissions" "all" { depends_on = [trestle_permission.p] }
data "trestle_policies" "all" { depends_on = [trestle_object.policy] }
data "trestle_hosts" "all" {}
data "trestle_tickets" "all" { depends_on = [trestle_ticket.t] }
data "trestle_object" "policy" {
  kind      = trestle_object.policy.kind
  namespace = trestle_object.policy.namespace
  name      = trestle_object.policy.name
}
data "trestle_explain" "web_to_db" {
  source      = trestle_resource.web.name
  destination = trestle_resource.db.name
  port        = 5432
  depends_on  = [trestle_permission.p]
}
data "trestle_explain" "db_to_web" {
  source      = trestle_resource.db.name
  destination = trestle_resource.web.name
  port        = 22
  depends_on  = [trestle_permission.p]
}

output "server" { value = trestle_join_token.t.servers[0] }
output "token" {
  value     = trestle_join_token.t.token
  sensitive = true
}
