//! `trestle join` and `trestle leave`: this machine becomes a host, and is none any more.
//!
//! ```text
//!   key (kept first) ─► controller ─► CA, certificate, agent.yaml ─► unit ─► what guards the host now
//! ```
//!
//! Every step leaves what the next run goes on with, so that a join that was cut anywhere is repeated by repeating the command.

mod home;
mod service;
mod statement;

use std::{path::PathBuf, time::Duration};

use agent::{
    Uplink,
    join::{Admission, HostKey, JoinError, Joined, pinned},
    local::{Client, SOCKET},
};
use anyhow::{Context as _, bail};
use jiff::Timestamp;
use model::{Fingerprint, Host, JoinToken};
use serde_json::json;
use tonic::Code;
use wire::json::time_text;

use self::{
    home::Home,
    statement::{Statement, StatementArgs},
};
use super::agent::{DATA_DIR, host_name};
use crate::{
    context,
    output::{Format, warn},
    progress::during,
};

/// Where a host's identity is kept.
const ETC: &str = "/etc/trestle";
/// How long the agent may take to be in sync before that is told as it is.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Args)]
#[command(
    after_help = "It makes a key that never leaves this machine, checks that the controller is the one the token is from, gets a
certificate, writes DIR, and installs and starts the agent's service. A join that was cut short is repeated by repeating it. A host
that was away longer than its certificate lasts comes back by itself; without TOKEN this command does it by hand.

Examples:
  trestle token create --join --tag web --uses 10 --for 1h     # at the controller: prints the token
  sudo trestle join https://controller:8081 TOKEN              # on each host
  sudo trestle join https://controller:8081 --file /run/join-token --name web-1 --no-service
  sudo trestle join https://controller:8081 --identity aws --fingerprint HEX       # by what the machine is: azure, gcp, ibm, kubernetes
  sudo trestle leave                                           # undoes it"
)]
pub struct JoinArgs {
    /// The controller's gRPC listener, as its certificate knows it
    #[arg(value_name = "URL")]
    url: String,
    /// Made with `trestle token create --join`; without it the host must have joined before
    token: Option<String>,
    /// File with the token, which then does not stand on the command line
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    file: Option<PathBuf>,
    /// Join without a token, by what this machine is: the name of an identity in the controller's configuration
    #[arg(long, value_name = "NAME", requires = "fingerprint", conflicts_with_all = ["token", "file"])]
    identity: Option<String>,
    #[command(flatten)]
    statement: StatementArgs,
    /// With --identity: SHA-256 fingerprint of the CA of the controller's certificate, in hexadecimal
    #[arg(long, value_name = "HEX", requires = "identity")]
    fingerprint: Option<Fingerprint>,
    /// What this host is called (default: its host name)
    #[arg(long)]
    name: Option<String>,
    /// Where the host's identity and the agent's configuration are kept
    #[arg(long, value_name = "DIR", default_value = ETC)]
    etc: PathBuf,
    /// Where the agent keeps its state
    #[arg(long, value_name = "DIR", default_value = DATA_DIR)]
    data_dir: PathBuf,
    /// Socket of the agent's local API
    #[arg(long, value_name = "FILE", default_value = SOCKET)]
    socket: PathBuf,
    /// Install no service: print the command that runs the agent
    #[arg(long)]
    no_service: bool,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "The controller forgets the host and takes its certificate back; the service, the key, the configuration and the agent's
state are removed, and so is what the agent has put into the kernel. It is no error if this host has not joined.

Examples:
  sudo trestle leave
  sudo trestle leave --local      the controller is not asked: this disk is a copy of another host's, or the controller is gone"
)]
pub struct LeaveArgs {
    /// Where the host's identity and the agent's configuration are kept
    #[arg(long, value_name = "DIR", default_value = ETC)]
    etc: PathBuf,
    /// Only undo what is on this machine
    #[arg(long)]
    local: bool,
}

pub async fn join(args: JoinArgs, output: Format) -> anyhow::Result<()> {
    let home = Home::new(&args.etc)?;
    let name = match args.name.clone().or_else(|| home.joined_as()) {
        Some(name) => name,
        None => host_name(),
    };
    Host::parse_name(&name)
        .with_context(|| format!("this host cannot be called {name:?}; give a name with --name"))?;
    let joined = during("Joining", ask(&args, &home, &name)).await?;
    let config = home.config_path();
    let service = match args.no_service {
        true => None,
        false => service::start(&args.etc)
            .context("the host has joined, but its service does not start; mend it and repeat the command")?,
    };
    for warning in &joined.warnings {
        warn(warning);
    }
    let guard = match &service {
        Some(unit) => guarded(unit, &args.socket).await,
        None => format!(
            "Nothing guards it yet{}. This runs the agent: {} agent --config {}",
            if args.no_service { "" } else { ": no systemd runs here" },
            service::program()?.display(),
            config.display()
        ),
    };
    let host = &joined.host;
    let tags = [&[host.tag.clone()][..], &host.tags[..]].concat().join(", ");
    let until = time_text(host.certificate_until);
    let sentence = format!(
        "Joined as {}: rules name it by {tags}.\nIts certificate is good until {until}; the agent renews it.\n{guard}",
        host.name
    );
    output.done(
        &sentence,
        &json!({ "host": host, "service": service, "config": config, "warnings": joined.warnings }),
    )
}

/// What this machine shows of itself.
enum Shown {
    Admission(Admission),
    /// What its platform says of it, to be asked for.
    Identity(String),
}

/// Has the controller make a host of this machine, and keeps what came of it.
async fn ask(args: &JoinArgs, home: &Home, name: &str) -> anyhow::Result<Joined> {
    let token: Option<JoinToken> = match (&args.token, &args.file) {
        (Some(text), _) => Some(text.parse()?),
        (None, Some(path)) => Some(context::read_token(path)?.expose().parse()?),
        (None, None) => None,
    };
    let given = match (token, args.identity.clone().zip(args.fingerprint.clone())) {
        (Some(token), _) => Some((token.ca.clone(), Shown::Admission(Admission::Token(token)))),
        (None, Some((provider, ca))) => Some((ca, Shown::Identity(provider))),
        (None, None) => None,
    };
    let (ca, shown) = match (given, home.ca()?) {
        (Some((ca, _)), Some(known)) if ca != known => bail!(
            "this host has joined another controller: the CA it knows has fingerprint {known}, and this one's is {ca}. Run `trestle \
             leave` first; it also works when the other controller is gone"
        ),
        (Some(given), _) => given,
        (None, Some(known)) => (known, Shown::Admission(Admission::Key)),
        (None, None) => {
            bail!("this host has not joined before: give the token that `trestle token create --join` prints")
        }
    };
    let key = HostKey::keep(&home.key_path())?;
    let pinned = pinned::connect(&args.url, &ca).await?;
    let challenge = agent::join::challenge(pinned.channel, pinned.clock_is_wrong).await?;
    let (name, admission) = match shown {
        Shown::Admission(admission) => (name.to_owned(), admission),
        Shown::Identity(provider) => {
            let Statement { text, instance } =
                args.statement.get(&provider, &args.url, &challenge.nonce).await?;
            // What it is admitted as is its instance's name, where nobody says another one and the rule asks for that.
            let named = args.name.clone().or_else(|| home.joined_as()).or(instance);
            (named.unwrap_or_else(|| name.to_owned()), Admission::Identity { provider, statement: text })
        }
    };
    let joined = agent::join::answer(challenge, &key, &name, admission).await?;
    if home.joined_as().is_none() {
        let cannot = || format!("cannot make the agent's directory {}", args.data_dir.display());
        agent::prepare(&args.data_dir).with_context(cannot)?;
    }
    home.keep(&joined, &pinned::pem(&pinned.ca), &args.url, &args.data_dir, &args.socket)?;
    Ok(joined)
}

/// What guards the host now that its service runs, as the agent itself says.
async fn guarded(unit: &str, socket: &std::path::Path) -> String {
    let client = Client { socket: socket.to_owned() };
    let end = tokio::time::Instant::now() + PATIENCE;
    loop {
        match client.status().await {
            Ok(status) if status.synced && status.ready => {
                return format!(
                    "{unit} runs and is in sync with the controller: {} objects are in force.",
                    status.objects
                );
            }
            Ok(_) | Err(_) if tokio::time::Instant::now() < end => {
                tokio::time::sleep(Duration::from_millis(200)).await
            }
            Ok(_) => {
                return format!(
                    "{unit} runs and is not in sync with the controller yet; look at `trestle agent status`."
                );
            }
            Err(err) => {
                return format!(
                    "{unit} was started and does not answer yet ({err}); look at `journalctl -u {unit}`."
                );
            }
        }
    }
}

pub async fn leave(args: LeaveArgs, output: Format) -> anyhow::Result<()> {
    let home = Home::at(&args.etc);
    let uplink = home.uplink();
    let mut told = Vec::new();
    if let (Some(uplink), false) = (&uplink, args.local) {
        told.push(during("Leaving", ask_to_forget(uplink)).await);
    }
    // The agent first: it would renew what is removed next.
    let had_service = service::remove()?;
    let data_dir = home.data_dir();
    // Where no agent of ours has run, it has put nothing there: what somebody set up by hand is not ours to take out.
    let has_run = data_dir.as_deref().is_some_and(agent::has_run);
    let taken_out = if has_run { agent::take_out() } else { Ok(0) };
    if let Some(socket) = home.socket().filter(|_| uplink.is_some())
        && (Client { socket }).status().await.is_ok()
    {
        warn(
            "an agent that was not started as a service runs still, and enforces again what is taken out: stop it, and repeat this command",
        );
    }
    let had_files = home.remove()?;
    if let Some(dir) = data_dir.filter(|dir| dir.exists()) {
        std::fs::remove_dir_all(&dir)
            .with_context(|| format!("cannot remove the agent's state in {}", dir.display()))?;
    }
    match taken_out {
        Ok(0) => {}
        Ok(_) => told.push(
            "What it had put into the kernel is taken out: nothing guards this host any more.".to_owned(),
        ),
        Err(err) => warn(&format!(
            "what is in the kernel stays in force: {err:#}; take it out with `nft delete table inet trestle-policy`"
        )),
    }
    let first = match (had_files || had_service, &uplink) {
        (false, _) => "This machine has not joined: there is nothing to leave.".to_owned(),
        (true, Some(uplink)) => format!("Left: this machine is host {} no longer.", uplink.node),
        (true, None) => "Left: what a join that was cut short had made is removed.".to_owned(),
    };
    told.insert(0, first);
    output.done(&told.join("\n"), &json!({ "left": had_files || had_service, "told": told }))
}

/// Has the controller forget this host; in words what came of it.
async fn ask_to_forget(uplink: &Uplink) -> String {
    match agent::renewal::leave(uplink).await {
        Err(err) if !is_forgotten(&err) => format!(
            "The controller was not told ({err}); if it is still there, remove the host: trestle host remove {}",
            uplink.node
        ),
        Ok(()) | Err(_) => "The controller has forgotten it; its certificate lets nobody in.".to_owned(),
    }
}

/// Removed before; or just now, and the answer was cut with the certificate that the call was made with.
fn is_forgotten(err: &JoinError) -> bool {
    matches!(err.code(), Some(Code::Unauthenticated | Code::PermissionDenied | Code::NotFound))
}

/// Now, for the first line of what is written.
fn today() -> String {
    Timestamp::now().strftime("%Y-%m-%d").to_string()
}
