//! Tells the controller, over the connection of the node's stream.
//!
//! A call of its own, beside the stream: the stream's reports and policies never wait for it, and it waits for the controller's answer,
//! one message at a time. What is not answered stays.

use std::{convert::Infallible, time::Duration};

use tokio::time::{sleep, timeout};
use tonic::{Code, transport::Channel};
use tracing::{debug, info};
use wire::trestle::v1::flows_client::FlowsClient;

use super::Flows;

/// What is seen within this is told together.
const GATHER: Duration = Duration::from_millis(500);
/// After a message that was not taken.
const PAUSE: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(30);

impl Flows {
    /// Tells what there is, for as long as the connection is of use. It does not end by itself.
    pub(crate) async fn tell(&self, channel: Channel) -> Infallible {
        let mut client = FlowsClient::new(channel);
        loop {
            let Some(message) = self.next_message() else {
                self.news.notified().await;
                sleep(GATHER).await;
                continue;
            };
            match timeout(PATIENCE, client.report_flows(message)).await {
                Ok(Ok(_)) => self.answered(),
                Ok(Err(status)) if status.code() == Code::Unimplemented => {
                    info!("the controller does not record flows");
                    std::future::pending::<()>().await;
                }
                Ok(Err(status)) => {
                    debug!(error = status.message(), "flows are not taken; they are told again");
                    sleep(PAUSE).await;
                }
                Err(_) => debug!("flows are not answered; they are told again"),
            }
        }
    }
}
