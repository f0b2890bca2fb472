//! `trestle check` and `trestle fix`.

use serde::Serialize;
use wire::trestle::v1::{CheckCloudsRequest, DriftInfo, orchestrator_client::OrchestratorClient};

use crate::{
    client::Connection,
    output::{Format, Rows},
};

pub async fn run(fix: bool, output: Format, connection: Connection) -> anyhow::Result<()> {
    let mut client = OrchestratorClient::new(connection);
    let drifts = client.check_clouds(CheckCloudsRequest { fix }).await?.into_inner().drifts;
    if drifts.is_empty() {
        return output.done("Everything is as it was made.", &Vec::<View>::new());
    }
    output.list(&drifts.into_iter().map(View::from).collect::<Vec<_>>())
}

#[derive(Debug, Serialize)]
struct View {
    object: String,
    what: String,
    mendable: bool,
}

impl From<DriftInfo> for View {
    fn from(drift: DriftInfo) -> Self {
        Self { object: drift.object, what: drift.what, mendable: drift.mendable }
    }
}

impl Rows for View {
    const HEADER: &'static [&'static str] = &["object", "what", "mendable"];

    fn row(&self) -> Vec<String> {
        vec![self.object.clone(), self.what.clone(), self.mendable.to_string()]
    }
}
