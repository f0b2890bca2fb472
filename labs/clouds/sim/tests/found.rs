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

/// The Go client of EC2 started two at once, and looked for them by zone and by the net they are in.
#[tokio::test]
async fn instances_of_ec2_that_start_together_are_one_reservation() {
    let sim = Sim::start().await.unwrap();
    let vpc = ec2(&sim, "CreateVpc&CidrBlock=10.0.0.0/16").await.1;
    let subnet = format!("CreateSubnet&CidrBlock=10.0.0.0/28&VpcId={}", between(&vpc, "<vpcId>"));
    let subnet = ec2(&sim, &subnet).await.1;
    let (id, zone) = (between(&subnet, "<subnetId>"), between(&subnet, "<availabilityZone>"));
    let run = |least: u8, most: u8| {
        format!("RunInstances&ImageId=ami-1&SubnetId={id}&MinCount={least}&MaxCount={most}")
    };
    let made = ec2(&sim, &run(1, 2)).await.1;
    assert_eq!(made.matches("<instanceId>").count(), 2, "{made}");
    assert_eq!(ec2(&sim, &run(2, 1)).await.0, 400);
    // Eleven addresses are for machines, and two are taken.
    assert_eq!(ec2(&sim, &run(10, 10)).await.0, 400);
    let rest = ec2(&sim, &run(1, 10)).await.1;
    assert_eq!(rest.matches("<instanceId>").count(), 9, "{rest}");
    let by = format!("DescribeInstances&Filter.1.Name=availability-zone&Filter.1.Value.1={zone}");
    let found = ec2(&sim, &by).await.1;
    assert_eq!(found.matches("<reservationId>").count(), 2, "{found}");
    assert_eq!(between(&found, "<architecture>"), "x86_64");
    let nets = ec2(&sim, "DescribeVpcs&Filter.1.Name=cidr&Filter.1.Value.1=10.0.0.0/16").await.1;
    assert_eq!(nets.matches("<vpcId>").count(), 1, "{nets}");
    let well = ec2(&sim, "DescribeInstanceStatus&MaxResults=5").await.1;
    assert_eq!(well.matches("<instanceStatus><details>").count(), 5, "{well}");
    let vpc = between(&vpc, "<vpcId>");
    let set = format!("ModifyVpcAttribute&VpcId={vpc}&EnableDnsHostnames.Value=true");
    assert_eq!(ec2(&sim, &set).await.0, 200);
    assert_eq!(ec2(&sim, &format!("{set}&EnableDnsSupport.Value=true")).await.0, 400);
    let names = ec2(&sim, &format!("DescribeVpcAttribute&VpcId={vpc}&Attribute=enableDnsHostnames")).await.1;
    assert!(names.contains("<enableDnsHostnames><value>true"), "{names}");
    assert_eq!(sim.defects(), Vec::<String>::new());
}

/// The Go client of EC2 looked for what the other end of a VPN connection has to be told.
#[tokio::test]
async fn a_vpn_connection_of_ec2_says_how_the_other_end_is_set_up() {
    let sim = Sim::start().await.unwrap();
    let hub = ec2(&sim, "CreateTransitGateway&Options.AmazonSideAsn=64520").await.1;
    let hub = between(&hub, "<transitGatewayId>");
    sim.pass(Duration::from_secs(600));
    // The Java client's way to name the address.
    let customer = ec2(&sim, "CreateCustomerGateway&Type=ipsec.1&BgpAsn=64999&PublicIp=34.1.2.3").await.1;
    let customer = between(&customer, "<customerGatewayId>");
    let tunnel = "Options.TunnelOptions.1";
    let tunnel = format!("{tunnel}.TunnelInsideCidr=169.254.21.0/30&{tunnel}.PreSharedKey=abcdefgh");
    let ends = format!("Type=ipsec.1&TransitGatewayId={hub}&CustomerGatewayId={customer}");
    let made = ec2(&sim, &format!("CreateVpnConnection&{ends}&{tunnel}")).await.1;
    let shown = ec2(&sim, "DescribeVpnConnections").await.1;
    for answer in [made, shown.clone()] {
        for part in ["34.1.2.3", "169.254.21.2", "64520", "pre_shared_key&gt;abcdefgh"] {
            assert!(between(&answer, "<customerGatewayConfiguration>").contains(part), "{part}: {answer}");
        }
    }
    let id = between(&shown, "<vpnConnectionId>");
    assert_eq!(ec2(&sim, &format!("DeleteVpnConnection&VpnConnectionId={id}")).await.0, 200);
    let gone = ec2(&sim, "DescribeVpnConnections").await.1;
    assert!(!gone.contains("customerGatewayConfiguration"), "{gone}");
    assert_eq!(sim.defects(), Vec::<String>::new());
}

/// The Go client of Azure's resource manager asked whether a group exists, what is in it, and deleted it.
#[tokio::test]
async fn what_is_in_a_resource_group_is_listed_and_goes_with_it() {
    let sim = Sim::start().await.unwrap();
    let group = "/subscriptions/s1/resourcegroups/g1";
    let net = format!("{group}/providers/Microsoft.Network/virtualNetworks/v1?api-version=2024-05-01");
    let body =
        r#"{"location": "westus2", "properties": {"addressSpace": {"addressPrefixes": ["10.0.0.0/16"]}}}"#;
    assert_eq!(send(&sim, Method::PUT, &net, body).await.0, 201);
    assert_eq!(send(&sim, Method::HEAD, group, "").await.0, 204);
    for list in [format!("{group}/resources"), "/subscriptions/s1/resourcegroups".to_owned()] {
        let all: Value = serde_json::from_str(&send(&sim, Method::GET, &list, "").await.1).unwrap();
        assert_eq!(all["value"].as_array().map(Vec::len), Some(1), "{all}");
    }
    assert_eq!(send(&sim, Method::DELETE, group, "").await.0, 202);
    assert_eq!(send(&sim, Method::GET, &net, "").await.0, 404);
}

/// The Go client of Compute Engine changed a subnet, listed addresses, and asked how a VPN gateway is.
#[tokio::test]
async fn a_subnet_is_patched_and_a_vpn_gateway_says_how_it_is() {
    let sim = Sim::start().await.unwrap();
    let ask = async |method: Method, path: &str, body: Value| {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let (status, text) = send(&sim, method, &format!("/compute/v1/projects/p1/{path}"), &body).await;
        (status, serde_json::from_str::<Value>(&text).unwrap())
    };
    ask(Method::POST, "global/networks", json!({"name": "n", "autoCreateSubnetworks": false})).await;
    let subnet = json!({"name": "s", "network": "global/networks/n", "ipCidrRange": "10.1.0.0/16"});
    ask(Method::POST, "regions/us-west1/subnetworks", subnet).await;
    let path = "regions/us-west1/subnetworks/s";
    assert_eq!(ask(Method::PATCH, path, json!({"privateIpGoogleAccess": true})).await.0, 412);
    let print = ask(Method::GET, path, Value::Null).await.1["fingerprint"].clone();
    let patch = json!({"privateIpGoogleAccess": true, "fingerprint": print});
    assert_eq!(ask(Method::PATCH, path, patch).await.0, 200);
    assert_eq!(ask(Method::GET, path, Value::Null).await.1["privateIpGoogleAccess"], true);
    let none = ask(Method::GET, "regions/us-west1/addresses", Value::Null).await;
    assert_eq!((none.0, &none.1["kind"]), (200, &json!("compute#addressList")));
    let gateway = json!({"name": "g", "network": "global/networks/n"});
    ask(Method::POST, "regions/us-west1/vpnGateways", gateway).await;
    let status = ask(Method::GET, "regions/us-west1/vpnGateways/g/getStatus", Value::Null).await.1;
    assert_eq!(status, json!({"result": {"vpnConnections": []}}));
    assert_eq!(sim.defects(), Vec::<String>::new());
}

/// The Go client of IBM Cloud looked for an image to start from.
#[tokio::test]
async fn ibm_cloud_has_images() {
    let sim = Sim::start().await.unwrap();
    let list = "/v1/images?version=2026-01-27&generation=2";
    let all: Value = serde_json::from_str(&send(&sim, Method::GET, list, "").await.1).unwrap();
    let name = all["images"][0]["name"].as_str().unwrap();
    let one = send(&sim, Method::GET, &format!("{list}&name={name}"), "").await.1;
    assert_eq!(serde_json::from_str::<Value>(&one).unwrap()["total_count"], 1);
    assert_eq!(sim.defects(), Vec::<String>::new());
}
