//! One peer of an Antrea rule.

use std::borrow::Cow;

use model::policy::{
    LabelSelector,
    antrea::{NamespacedName, Peer},
    convert,
    output::{Direction, MemberKind, Problem},
};

use super::{Peers, RuleContext, Translator};
use crate::{
    selection::{GroupRef, SERVICE_ACCOUNT_LABEL, Scope, Selection},
    translate::{World, name_in, resolve},
};

impl<'a, W: World> Translator<'a, '_, W> {
    pub(super) fn peer(
        &mut self,
        context: &RuleContext<'a>,
        index: usize,
        peer: &'a Peer,
        peers: &mut Peers<'a>,
    ) {
        if let Err(problem) = self.try_peer(context, index, peer, peers) {
            self.problems.push(problem.under(&format!("{}[{index}]", context.peers_path)));
        }
    }

    fn try_peer(
        &mut self,
        context: &RuleContext<'a>,
        index: usize,
        peer: &'a Peer,
        peers: &mut Peers<'a>,
    ) -> Result<(), Problem> {
        if let Some(block) = &peer.ip_block {
            peers.ip_blocks.push(convert::ip_block(block).map_err(|p| p.under(".ipBlock"))?);
        } else if let Some(group) = &peer.group {
            self.group_peer(&format!("{}[{index}].group", context.peers_path), group, peers);
        } else if let Some(fqdn) = &peer.fqdn {
            if context.direction == Direction::In {
                return Err(Problem::new(".fqdn", "names match egress traffic only"));
            }
            peers.fqdns.push(fqdn.clone());
        } else if let Some(account) = &peer.service_account {
            peers.select(service_account(account));
        } else if let Some(selector) = &peer.node_selector {
            convert::selector(selector).map_err(|p| p.under(".nodeSelector"))?;
            let selector = Some(Cow::Borrowed(selector));
            peers.select(Selection { kind: MemberKind::Node, scope: Scope::Everywhere, selector });
        } else {
            let scope = self.scope(peer.namespace_selector.as_ref())?;
            return self.try_pods(peer, scope, peers);
        }
        Ok(())
    }

    /// Pods or entities of `scope`; for peers that follow a namespace the scope is not the peer's own.
    pub(super) fn pods(
        &mut self,
        context: &RuleContext<'a>,
        index: usize,
        peer: &'a Peer,
        scope: Scope<'a>,
        peers: &mut Peers<'a>,
    ) {
        if let Err(problem) = self.try_pods(peer, scope, peers) {
            self.problems.push(problem.under(&format!("{}[{index}]", context.peers_path)));
        }
    }

    fn try_pods(&self, peer: &'a Peer, scope: Scope<'a>, peers: &mut Peers<'a>) -> Result<(), Problem> {
        if let Some(selector) = &peer.external_entity_selector {
            convert::selector(selector).map_err(|p| p.under(".externalEntitySelector"))?;
            peers.select(Selection {
                kind: MemberKind::ExternalEntity,
                scope,
                selector: Some(Cow::Borrowed(selector)),
            });
            return Ok(());
        }
        if let Some(selector) = &peer.pod_selector {
            convert::selector(selector).map_err(|p| p.under(".podSelector"))?;
        }
        if peer.pod_selector.is_none() && peer.namespace_selector.is_none() && peer.namespaces.is_none() {
            return Err(Problem::new("", "the peer names nobody"));
        }
        let selector = peer.pod_selector.as_ref().map(Cow::Borrowed);
        peers.select(Selection { kind: MemberKind::Pod, scope, selector });
        Ok(())
    }

    pub(super) fn scope(&self, namespaces: Option<&'a LabelSelector>) -> Result<Scope<'a>, Problem> {
        match namespaces {
            Some(selector) => {
                convert::selector(selector).map_err(|p| p.under(".namespaceSelector"))?;
                Ok(Scope::Matching(Cow::Borrowed(selector)))
            }
            None if self.namespace.is_empty() => Ok(Scope::Everywhere),
            None => Ok(Scope::Namespace(Cow::Borrowed(self.namespace))),
        }
    }

    /// A group that does not exist yet is an empty one; one that cannot be realised is a fault.
    fn group_peer(&mut self, path: &str, group: &str, peers: &mut Peers<'a>) {
        let name = name_in(self.namespace, group);
        let Some(resolved) = resolve(self.world, &name) else {
            self.remarks.push(Problem::new(path, format!("the group `{group}` does not exist; it is empty")));
            peers.add(GroupRef::Named(name));
            return;
        };
        if resolved.unrealised {
            self.say(path, format!("the group `{group}` cannot be realised; look at its status"));
        }
        for block in resolved.ip_blocks.iter() {
            if !peers.ip_blocks.contains(block) {
                peers.ip_blocks.push(block.clone());
            }
        }
        if resolved.ip_blocks.is_empty() || !resolved.selections.is_empty() {
            peers.add(GroupRef::Named(name));
        }
    }
}

pub(super) fn service_account<'a>(account: &NamespacedName) -> Selection<'a> {
    Selection {
        kind: MemberKind::Pod,
        scope: Scope::Namespace(Cow::Owned(account.namespace.clone())),
        selector: Some(Cow::Owned(LabelSelector::of_labels([(
            SERVICE_ACCOUNT_LABEL,
            account.name.as_str(),
        )]))),
    }
}
