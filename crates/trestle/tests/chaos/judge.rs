//! What must be so when there is peace again.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use agent::Agent;
use tokio::time::sleep;
use tonic::Status;
use wire::trestle::v1::{GetNodeRequest, ListPoliciesRequest, PolicyState};

use super::{
    book::Book,
    client::Clients,
    crowd::{Node, held},
    site::url,
    writers::stored,
};

/// Longest wait until everybody is at the present: agents that found nobody try again after half a minute at most, and a
/// busy machine needs the rest.
const PEACE: Duration = Duration::from_secs(240);

/// Waits that have an end.
struct Patience {
    what: String,
    until: Instant,
}

impl Patience {
    fn new(what: String) -> Self {
        Self { what, until: Instant::now() + PEACE }
    }

    /// A moment; an error when there were enough.
    async fn wait(&self, why: String) -> Result<(), String> {
        if Instant::now() > self.until {
            return Err(format!("not within {PEACE:?}: {}\n{why}", self.what));
        }
        sleep(Duration::from_millis(200)).await;
        Ok(())
    }
}

/// Every controller has what was acknowledged.
pub async fn nothing_is_lost(clients: Clients, book: Book) -> Result<(), String> {
    for controller in 0..clients.count() {
        let patience = Patience::new(format!("controller {controller} has what was acknowledged"));
        while let Err(why) = has(&clients, controller, &book).await {
            patience.wait(why).await?;
        }
    }
    Ok(())
}

async fn has(clients: &Clients, controller: usize, book: &Book) -> Result<(), String> {
    let found = stored(clients, controller).await.map_err(|status| status.to_string())?;
    match book.differences(&found) {
        none if none.is_empty() => Ok(()),
        some => Err(some.join("\n")),
    }
}

/// By kind and name, and the number of members of a set.
type Names = BTreeMap<(i32, String), Option<u64>>;

/// What a controller means a node to hold.
async fn meant(clients: &Clients, controller: usize, node: &str) -> Result<Names, Status> {
    let asked = clients.nodes(controller).get_node(GetNodeRequest { name: node.to_owned() }).await?;
    let objects = asked.into_inner().objects.into_iter();
    Ok(objects.map(|object| ((object.kind, object.name), object.members)).collect())
}

/// Whether every controller means the node to hold this.
async fn agrees(clients: &Clients, node: &str, holds: &Names) -> Result<(), String> {
    for controller in 0..clients.count() {
        let meant = meant(clients, controller, node).await.map_err(|status| status.to_string())?;
        if meant != *holds {
            let not_held: Vec<_> = meant.iter().filter(|(key, _)| !holds.contains_key(*key)).collect();
            let not_meant: Vec<_> = holds.iter().filter(|(key, _)| !meant.contains_key(*key)).collect();
            return Err(format!(
                "controller {controller}: {} meant, {} held; not held {not_held:?}; not meant {not_meant:?}",
                meant.len(),
                holds.len()
            ));
        }
    }
    Ok(())
}

/// The agent holds what every controller means it to.
pub async fn converges(clients: Clients, node: String, agent: Agent) -> Result<Agent, String> {
    let patience = Patience::new(format!("{node} holds what the controllers mean"));
    while let Err(why) = agent_agrees(&clients, &node, &agent).await {
        patience.wait(why).await?;
    }
    Ok(agent)
}

async fn agent_agrees(clients: &Clients, node: &str, agent: &Agent) -> Result<(), String> {
    let status = agent.local().status();
    if !status.synced || !status.failures.is_empty() {
        return Err(format!("{status:?}"));
    }
    let objects = held(agent).await.into_iter();
    let members = |members: Option<usize>| members.map(|members| members as u64);
    let holds = objects.map(|object| ((object.kind, object.name), members(object.members))).collect();
    agrees(clients, node, &holds).await
}

/// As [`converges`], of an agent that is another process: what `trestle agent objects` says.
pub async fn process_converges(
    clients: Clients,
    node: String,
    asks: impl Fn() -> Result<serde_json::Value, String>,
) -> Result<(), String> {
    let patience = Patience::new(format!("{node} holds what the controllers mean"));
    loop {
        let agreed = match asks().and_then(|objects| names(&objects)) {
            Ok(holds) => agrees(&clients, &node, &holds).await,
            Err(why) => Err(why),
        };
        match agreed {
            Ok(()) => return Ok(()),
            Err(why) => patience.wait(why).await?,
        }
    }
}

fn names(objects: &serde_json::Value) -> Result<Names, String> {
    let key = |object: &serde_json::Value| {
        let kind = object["kind"].as_i64().and_then(|kind| i32::try_from(kind).ok());
        (kind.unwrap_or_default(), object["name"].as_str().unwrap_or_default().to_owned())
    };
    let objects = objects.as_array().ok_or("no list of objects")?.iter();
    Ok(objects.map(|object| (key(object), object["members"].as_u64())).collect())
}

/// What came to the agent in pieces, from many controllers, is to the letter what one controller tells somebody who knows
/// nothing.
pub async fn is_as_told_afresh(node: Node, agent: Agent, controller: usize) -> Result<usize, String> {
    let before = held(&agent).await;
    agent.stop().await.map_err(|fault| fault.to_string())?;
    let (fresh, dir) = node.afresh(&url(controller));
    let agent = fresh.start_in(dir).await;
    let patience = Patience::new(format!("{} is told everything afresh", node.name));
    while !agent.local().status().synced {
        patience.wait(format!("{:?}", agent.local().status())).await?;
    }
    let after = held(&agent).await;
    agent.stop().await.map_err(|fault| fault.to_string())?;
    match before == after {
        true => Ok(before.len()),
        false => Err(format!("{}: held {before:#?}\nand is told {after:#?}", node.name)),
    }
}

/// Each policy is in force wherever it should be; how many there are.
pub async fn policies_are_realized(clients: Clients) -> Result<usize, String> {
    let patience = Patience::new("all policies are realized".to_owned());
    loop {
        match realized(&clients).await {
            Ok(count) => return Ok(count),
            Err(why) => patience.wait(why).await?,
        }
    }
}

/// Whether every controller says so.
async fn realized(clients: &Clients) -> Result<usize, String> {
    let mut counts = Vec::new();
    for controller in 0..clients.count() {
        let listed = clients.policies(controller).list_policies(ListPoliciesRequest::default()).await;
        let policies = listed.map_err(|status| status.to_string())?.into_inner().policies;
        counts.push((policies.len(), policies.iter().map(|policy| policy.span).sum::<u32>()));
        let is_realized = |policy: &PolicyState| {
            policy.phase == if policy.span == 0 { "Pending" } else { "Realized" }
                && policy.realized == policy.span
                && policy.problems.is_empty()
        };
        if let Some(policy) = policies.iter().find(|policy| !is_realized(policy)) {
            return Err(format!("controller {controller}: {policy:?}"));
        }
    }
    let same = counts.iter().all(|count| *count == counts[0]);
    if same { Ok(counts[0].0) } else { Err(format!("policies, and the nodes they are for: {counts:?}")) }
}
