//! The CNI plugin: chained after whoever makes a Pod's link, it has the node's agent attach that link before the Pod starts.
//!
//! ```text
//!   runtime ─ environment, document ─► ask ─► act ─► the agent's socket
//!                                              └──► the node's links: which one leads to the Pod
//! ```
//!
//! In: what a container runtime says by CNI, specification 0.3.1 to 1.1. Out: one document, also when something is wrong. Holds nothing:
//! what is attached for which container is the agent's to know, so that an old container's end never detaches a new one of the same Pod,
//! and a record of it is never on one side alone. Not here: links, addresses and routes, which the plugin before makes; where the plugin is
//! named in a node's configuration ([`chain`]).

mod act;
mod ask;
pub mod chain;
mod link;

use serde_json::{Value, json};

use self::ask::{Asked, Fault, Verb};
pub(crate) use self::link::node_end;

/// The name of the program as a runtime calls it: it gives no arguments.
pub const PROGRAM: &str = "trestle-cni";

/// What a runtime is answered: a document, where there is one to give; an error is one too.
pub type Answer = Result<Option<Value>, Value>;

/// Does what a runtime asks with this document, and these variables of its environment.
pub async fn answer(text: &[u8], environment: impl Fn(&str) -> String) -> Answer {
    let asked = match Asked::read(text, environment) {
        Ok(asked) => asked,
        Err(fault) => return Err(fault.document(&ask::version_of(text))),
    };
    if asked.verb == Verb::Version {
        return Ok(Some(json!({"cniVersion": asked.version, "supportedVersions": ask::VERSIONS})));
    }
    act::act(&asked).await.map_err(|fault| fault.document(&asked.version))
}

/// What is answered if the document cannot even be read.
pub fn unreadable(error: &std::io::Error) -> Value {
    Fault::new(Fault::READ, "cannot read standard input", error.to_string()).document(ask::NEWEST)
}
