//! How far nodes are with each policy, whichever way they speak: stock agents report each policy to the watch API, clouds
//! do as they do, and agents of the node protocol acknowledge revisions and name what they could not.

use std::{collections::HashMap, sync::Arc};

use ::transport::{Hub, SessionView};
use drivers::transport::{NODE, objects};
use model::policy::{ObjectId, output::Identifier};
use watch::{Cache, Realisation};
use wire::trestle::v1::ObjectKind;

/// Who knows how far nodes are.
#[derive(Clone)]
pub struct Realisations {
    pub hub: Arc<Hub>,
    pub watch: Arc<Cache>,
}

impl Realisations {
    /// By the object that the policy was made from.
    pub fn all(&self) -> HashMap<ObjectId, Realisation> {
        let sessions = self.hub.sessions();
        let told: HashMap<&str, &SessionView> = sessions
            .iter()
            .filter(|session| session.dialect == NODE)
            .map(|session| (&*session.name, session))
            .collect();
        let of_session = |node: &str, policy: &Identifier| acknowledged(told.get(node)?, policy);
        let realisations = self.watch.realisations(&of_session).into_iter();
        realisations.map(|realisation| (realisation.source.clone(), realisation)).collect()
    }
}

/// A node that has applied all that concerns it has this policy too, unless it said that it could not. One that is behind
/// may have it already; that is known when it has caught up, a moment later.
fn acknowledged(session: &SessionView, policy: &Identifier) -> Option<Result<(), String>> {
    if !session.errors.is_empty() {
        let key = objects::key(ObjectKind::Policy, &policy.to_string());
        if let Some((_, message)) = session.errors.iter().find(|(of, _)| *of == key) {
            return Some(Err(message.clone()));
        }
    }
    session.applied.filter(|applied| *applied >= session.revision).map(|_| Ok(()))
}
