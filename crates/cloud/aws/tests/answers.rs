//! Answers that cannot be read: an error that says where, and nothing is changed.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::sync::{Arc, Mutex};

use cloud_api::{At, CloudErrorKind, prelude::*};
use cloud_aws::{AwsCloud, AwsOptions};
use cloud_http::auth::Environment;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

/// Something in EC2's place that gives one answer to everything, and the actions that it was asked for.
async fn ec2(answer: &'static str) -> (AwsCloud, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = Some(format!("http://{}", listener.local_addr().unwrap()));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut text = String::new();
            while !text.contains("Version=") {
                let mut bytes = [0; 4096];
                let count = stream.read(&mut bytes).await.unwrap();
                text.push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
            let action = text.split_once("Action=").unwrap().1.split('&').next().unwrap().to_owned();
            log.lock().unwrap().push(action);
            let head =
                format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", answer.len());
            stream.write_all(format!("{head}{answer}").as_bytes()).await.unwrap();
        }
    });
    let regions = Some(vec!["eu-west-1".parse().unwrap()]);
    let options = AwsOptions { endpoint, regions, ..AwsOptions::default() };
    let keys = [("AWS_ACCESS_KEY_ID", "A"), ("AWS_SECRET_ACCESS_KEY", "s")];
    (AwsCloud::with(&options, Environment::of(keys), None, None).unwrap(), asked)
}

#[tokio::test]
async fn what_cannot_be_read_is_told_and_nothing_is_made() {
    let missing = "<DescribeVpcsResponse><vpcSet><item><vpcId>vpc-1</vpcId><cidrBlock>10.0.0.0/16</cidrBlock></item>\
                   <item><vpcId>vpc-2</vpcId></item></vpcSet></DescribeVpcsResponse>";
    let mistyped = "<DescribeVpcsResponse><vpcSet><item><vpcId>vpc-1</vpcId><cidrBlock>10</cidrBlock></item></vpcSet>\
                    </DescribeVpcsResponse>";
    let another = "<html><body>Welcome to the hotel's network</body></html>";
    for (answer, told) in [
        (missing, "vpcSet.item[1]"),
        (mistyped, "vpcSet.item[0].cidrBlock"),
        (another, "not a DescribeVpcsResponse"),
    ] {
        let (cloud, asked) = ec2(answer).await;
        let at = At { site: "ns.aws".parse().unwrap(), deployment: String::new() };
        let region = "eu-west-1".parse().unwrap();
        let err = cloud.ensure_network(&at, &region, "10.0.0.0/16".parse().unwrap()).await.unwrap_err();
        assert_eq!(err.kind, CloudErrorKind::Unavailable);
        assert!(err.message.contains("ec2:DescribeVpcs") && err.message.contains(told), "{err}");
        assert_eq!(*asked.lock().unwrap(), ["DescribeVpcs"]);
    }
}
