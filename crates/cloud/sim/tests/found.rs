//! What clients found that were not there when the simulators were written. What the `gcloud` and `az` commands found is in
//! their recordings.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::time::Duration;

use cloud_http::{HttpTransport, Request, Transport as _};
use cloud_sim::Sim;
use http::Method;
use serde_json::{Value, json};

/// Sends a request, lets what it starts come to its end, and answers with status and text.
async fn send(sim: &Sim, method: Method, path: &str, body: &str) -> (u16, String) {
    let mut request = Request::new("found", method, format!("{}{path}", sim.url()));
    let scope = "AWS4-HMAC-SHA256 Credential=A/20260101/us-east-1/ec2/aws4_request";
    let who = if path == "/" { scope } else { "Bearer x" };
    request.header(http::header::AUTHORIZATION, who);
    request.body = body.to_owned().into();
    let reply = HttpTransport::new(None).unwrap().send(&request).await.unwrap();
    sim.pass(Duration::from_secs(60));
    (reply.status, reply.text().into_owned())
}

async fn ec2(sim: &Sim, body: &str) -> (u16, String) {
    send(sim, Method::POST, "/", &format!("Version=2016-11-15&Action={body}")).await
}

fn between<'t>(text: &'t str, start: &str) -> &'t str {
    text.split(start).nth(1).unwrap_or_else(|| panic!("no {start} in {text}")).split('<').next().unwrap()
}

/// The JavaScript client of EC2 asked for the rules it had made, and deleted one by its id.
#[tokio::test]
async fn a_rule_of_ec2_has_an_id_that_stays() {
    let sim = Sim::start().await.unwrap();
    let vpc = ec2(&sim, "CreateVpc&CidrBlock=10.0.0.0/16").await.1;
    let vpc = between(&vpc, "<vpcId>");
    let group =
        ec2(&sim, &format!("CreateSecurityGroup&GroupName=web-1&GroupDescription=d&VpcId={vpc}")).await.1;
    let group = between(&group, "<groupId>").to_owned();
    let mut ids = Vec::new();
    for port in [80, 443] {
        // As clients write it that are older than lists of permissions.
        let rule = format!("IpProtocol=tcp&FromPort={port}&ToPort={port}&CidrIp=10.1.0.0/16");
        let made = ec2(&sim, &format!("AuthorizeSecurityGroupIngress&GroupId={group}&{rule}")).await.1;
        ids.push(between(&made, "<securityGroupRuleId>").to_owned());
    }
    let revoke = format!("RevokeSecurityGroupIngress&GroupId={group}&SecurityGroupRuleId.1={}", ids[0]);
    assert_eq!(ec2(&sim, &revoke).await.0, 200);
    assert_eq!(ec2(&sim, &revoke).await.0, 400);
    let left = ec2(&sim, &format!("DescribeSecurityGroupRules&SecurityGroupRuleId.1={}", ids[1])).await.1;
    assert_eq!(between(&left, "<fromPort>"), "443");
    let found = ec2(&sim, "DescribeSecurityGroups&Filter.1.Name=group-name&Filter.1.Value.1=web-*").await.1;
    assert_eq!(between(&found, "<groupId>"), group);
    let other = ec2(&sim, "DescribeSecurityGroups&Filter.1.Name=group-name&Filter.1.Value.1=web-?x").await.1;
    assert!(!other.contains("<groupId>"), "{other}");
    let pair = "IpPermissions.1.IpProtocol=tcp&IpPermissions.1.FromPort=1&IpPermissions.1.ToPort=1";
    let pair = format!("{pair}&IpPermissions.1.Groups.1.GroupId={group}");
    let refused = ec2(&sim, &format!("AuthorizeSecurityGroupIngress&GroupId={group}&{pair}")).await;
    assert_eq!(between(&refused.1, "<Code>"), "UnsupportedOperation");
}

/// The JavaScript client of Compute Engine cleared a router by replacing it, which sends no empty lists.
#[tokio::test]
async fn what_a_replacement_leaves_out_is_gone() {
    let sim = Sim::start().await.unwrap();
    let project = "/compute/v1/projects/p1";
    let put = async |method: Method, path: &str, body: Value| {
        let (status, text) = send(&sim, method, &format!("{project}/{path}"), &body.to_string()).await;
        assert_eq!(status, 200, "{path}: {text}");
    };
    put(Method::POST, "global/networks", json!({"name": "n", "autoCreateSubnetworks": false})).await;
    let subnet = json!({"name": "s", "network": "global/networks/n", "ipCidrRange": "10.1.0.0/16"});
    put(Method::POST, "regions/us-west1/subnetworks", subnet).await;
    let nat = json!({"name": "nat", "natIpAllocateOption": "AUTO_ONLY", "sourceSubnetworkIpRangesToNat": "ALL_SUBNETWORKS_ALL_IP_RANGES"});
    let router = json!({"name": "r", "network": "global/networks/n", "bgp": {"asn": 64514}});
    let mut with = router.clone();
    with["nats"] = json!([nat]);
    put(Method::POST, "regions/us-west1/routers", with).await;
    put(Method::PUT, "regions/us-west1/routers/r", router).await;
    let shown = send(&sim, Method::GET, &format!("{project}/regions/us-west1/routers/r"), "").await.1;
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((&shown["nats"], &shown["bgp"]["asn"]), (&Value::Null, &json!(64514)));
    let network = send(&sim, Method::GET, &format!("{project}/global/networks/n"), "").await.1;
    let network: Value = serde_json::from_str(&network).unwrap();
    assert_eq!(network["subnetworks"].as_array().map(Vec::len), Some(1), "{network}");
}

/// The JavaScript client of Azure was shown the password it had given.
#[tokio::test]
async fn passwords_are_not_shown() {
    let sim = Sim::start().await.unwrap();
    let base = "/subscriptions/s/resourceGroups/g/providers";
    let put = async |kind: &str, properties: Value| {
        let body = json!({"location": "westus2", "properties": properties}).to_string();
        let path = format!("{base}/{kind}/x?api-version=2024-05-01");
        let (status, text) = send(&sim, Method::PUT, &path, &body).await;
        assert_eq!(status, 201, "{kind}: {text}");
        text
    };
    let space = json!({"addressPrefixes": ["10.0.0.0/16"]});
    let subnets = json!([{"name": "s", "properties": {"addressPrefix": "10.0.0.0/24"}}]);
    put("Microsoft.Network/virtualNetworks", json!({"addressSpace": space, "subnets": subnets})).await;
    let subnet = json!({"id": format!("{base}/Microsoft.Network/virtualNetworks/x/subnets/s")});
    let inside = json!([{"name": "c", "properties": {"subnet": subnet}}]);
    put("Microsoft.Network/networkInterfaces", json!({"ipConfigurations": inside})).await;
    let interface = json!({"id": format!("{base}/Microsoft.Network/networkInterfaces/x")});
    let machine = json!({
        "hardwareProfile": {"vmSize": "Standard_B1s"},
        "osProfile": {"computerName": "x", "adminUsername": "me", "adminPassword": "hush", "customData": null},
        "networkProfile": {"networkInterfaces": [interface]},
    });
    let shown = put("Microsoft.Compute/virtualMachines", machine).await;
    assert!(shown.contains("adminUsername") && !shown.contains("hush"), "{shown}");
}
