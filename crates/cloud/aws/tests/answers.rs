//! Answers that cannot be read: an error that says where, and nothing is changed.

use cloud_api::{At, CloudErrorKind, prelude::*};
use cloud_aws::{AwsCloud, AwsOptions};
use cloud_http::{World, auth::Environment, testing::Server};

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
        // Something in EC2's place that gives one answer to everything.
        let ec2 = Server::start(|_| Some(answer.to_owned())).await;
        let keys = [("AWS_ACCESS_KEY_ID", "A"), ("AWS_SECRET_ACCESS_KEY", "s")];
        let world = World { environment: Environment::of(keys), ..World::default() };
        let regions = Some(vec!["eu-west-1".parse().unwrap()]);
        let options = AwsOptions { endpoint: Some(ec2.url.clone()), regions, ..AwsOptions::default() };
        let cloud = AwsCloud::with(&options, world).unwrap();
        let at = At { site: "ns.aws".parse().unwrap(), deployment: String::new() };
        let region = "eu-west-1".parse().unwrap();
        let err = cloud.ensure_network(&at, &region, "10.0.0.0/16".parse().unwrap()).await.unwrap_err();
        assert_eq!(err.kind, CloudErrorKind::Unavailable);
        assert!(err.message.contains("ec2:DescribeVpcs") && err.message.contains(told), "{err}");
        let asked = ec2.asked();
        assert!(matches!(&asked[..], [one] if one.contains("Action=DescribeVpcs&")), "{asked:?}");
    }
}
