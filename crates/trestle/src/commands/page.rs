//! `trestle page`: the address of the page, with a code that logs the browser in.

use anyhow::Context as _;
use jiff::Timestamp;
use serde_json::json;
use tokio::process::Command;
use wire::trestle::v1::{CreateLoginRequest, access_client::AccessClient};

use crate::{client::ConnectionArgs, context::ContextFile, output::Format};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "The link works once, and for ten minutes. The session it begins lasts half a day and has your role.

Examples:
  trestle page                                   print the link
  trestle page --open                            open it in the browser
  trestle page --http https://controller:8080    for a controller that `trestle up` did not start"
)]
pub struct PageArgs {
    /// Open it in the browser
    #[arg(long)]
    open: bool,
    /// Where the page is (default: the controller started by `trestle up`)
    #[arg(long, value_name = "URL", env = "TRESTLE_HTTP")]
    http: Option<String>,
}

/// A code stands in the fragment: browsers send it to nobody, and the page takes it out of the address at once.
pub fn link(http: &str, code: &str) -> String {
    format!("{}/#login={code}", http.trim_end_matches('/'))
}

pub async fn run(args: PageArgs, output: Format, connection: ConnectionArgs) -> anyhow::Result<()> {
    let http = match args.http {
        Some(http) => http,
        None => ContextFile::load()?.context("say where the page is with --http")?.http,
    };
    let client = connection.connect().await?;
    let made = AccessClient::new(client).create_login(CreateLoginRequest {}).await?.into_inner();
    let link = link(&http, &made.code);
    if args.open {
        let opened = Command::new("xdg-open").arg(&link).status().await;
        let opened = opened.context("cannot run xdg-open; open the link yourself")?;
        anyhow::ensure!(opened.success(), "xdg-open could not open the page; open it yourself: {link}");
        return Ok(());
    }
    let expires_at = Timestamp::from_second(made.expires_at)?.to_string();
    output.done(&link, &json!({ "link": link, "expires_at": expires_at }))
}
