//! For tests: public clouds by their names, with the bounds that their plugins tell.

use cloud_api::FakeCloud;
use model::CloudTraits;

pub fn traits_of(kind: &str) -> CloudTraits {
    match kind {
        "aws" => cloud_aws::AwsCloud::traits(),
        "azure" => cloud_azure::AzureCloud::traits(),
        "gcp" => cloud_gcp::GcpCloud::traits(),
        "ibm" => cloud_ibm::IbmCloud::traits(),
        _ => CloudTraits::default(),
    }
}

/// A cloud in memory that plays one of them.
pub fn fake(kind: &str) -> FakeCloud {
    FakeCloud::playing(kind.parse().unwrap(), traits_of(kind))
}
