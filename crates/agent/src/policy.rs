//! Policies as a part of the agent: what the node holds, told to the policy plane, which keeps the kernel equal.
//!
//! In: the view. Out: changes for [`PolicyExecutor`]. Holds: the executor, and what it was told, to tell it only what
//! differs. Not here: what policies come to (`node-policy`), netlink (`node-kernel`).

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    os::fd::{AsFd as _, OwnedFd},
    sync::Arc,
};

use model::policy::output::Member;
use node_kernel::{
    link as kernel_link,
    netlink::NetlinkError,
    policy::{self as kernel, PolicyError, PolicyExecutor},
};
use node_policy::{Change, ClosedHost, LocalChange, Options, Permit, SetKind, Workload, WorkloadId};
use tracing::warn;
use wire::{
    node::read::network_policy,
    trestle::v1::{ObjectKind, SetMember, node_apply::Body},
};

use crate::{
    PolicySettings,
    endpoints::{Endpoint, Endpoints, Pod},
    flows::{self, Locals, Named, Seen},
    held::{Content, Difference, Held, Key, Members},
    host::{self, FailSafes, HostRecord, Interface},
    part::{Changed, Holding, HostView, Link, Outcome, Part, View},
    registry::Unnamed,
};

const KINDS: &[ObjectKind] = &[ObjectKind::AppliedToSet, ObjectKind::AddressSet, ObjectKind::Policy];

/// Keeps the table of policies.
pub struct Policies {
    executor: PolicyExecutor,
    /// The objects and the Pods that the executor knows of.
    told: BTreeSet<Key>,
    pods: BTreeMap<Pod, Endpoint>,
    unnamed: Unnamed,
    /// How names of Pods' links begin.
    prefixes: Vec<String>,
    /// And those of containers, of machines within the node, and of Pods.
    inner: Vec<String>,
    fail_safes: FailSafes,
    /// What the executor was told to leave open at the node itself.
    open: Option<Vec<Permit>>,
    addresses: Addresses,
    /// Parts of objects that make no sense, by object.
    unreadable: BTreeMap<Key, String>,
    last: Outcome,
}

impl Policies {
    /// Acts in the network namespace of the calling thread. What an earlier run left stays in force until the first
    /// `apply`.
    pub fn open(options: Options, settings: &PolicySettings) -> Result<Self, PolicyError> {
        Ok(Self {
            executor: PolicyExecutor::open(options)?,
            told: BTreeSet::new(),
            pods: BTreeMap::new(),
            unnamed: Unnamed::new(),
            prefixes: settings.pods.clone(),
            inner: settings.inner_prefixes(),
            fail_safes: settings.fail_safes.clone(),
            open: None,
            addresses: Addresses::default(),
            unreadable: BTreeMap::new(),
            last: Outcome::default(),
        })
    }

    fn changes(&mut self, held: &Held, changed: Changed<'_>) -> Vec<Change> {
        match changed {
            Changed::All => {
                let gone: Vec<_> = self.told.iter().filter(|key| held.get(key).is_none()).cloned().collect();
                let gone: Vec<_> = gone.iter().filter_map(|key| self.remove(key)).collect();
                let all = held.objects().filter_map(|(key, _)| self.put(held, key, &Difference::Whole));
                let all: Vec<_> = all.collect();
                // Sets before policies, and what is named goes after what names it.
                all.into_iter().chain(gone.into_iter().rev()).collect()
            }
            Changed::Some { objects, .. } => {
                let (gone, put): (Vec<_>, Vec<_>) =
                    objects.iter().partition(|(_, difference)| **difference == Difference::Gone);
                let put: Vec<_> =
                    put.into_iter().filter_map(|(key, difference)| self.put(held, key, difference)).collect();
                let gone: Vec<_> = gone.into_iter().rev().filter_map(|(key, _)| self.remove(key)).collect();
                put.into_iter().chain(gone).collect()
            }
        }
    }

    fn remove(&mut self, key: &Key) -> Option<Change> {
        self.unreadable.remove(key);
        let kind = plane_kind(key)?;
        self.told.remove(key).then(|| Change::Remove { kind, name: key.name.clone() })
    }

    fn put(&mut self, held: &Held, key: &Key, difference: &Difference) -> Option<Change> {
        let kind = plane_kind(key)?;
        let content = &held.get(key)?.content;
        let known = !self.told.insert(key.clone());
        match (content, set_kind(kind)) {
            (Content::Set(members), Some(kind)) => {
                return Some(self.put_set(key, kind, members, difference, known));
            }
            (Content::Whole(encoded), None) => {
                if let Body::Policy(policy) = encoded.body() {
                    self.unreadable.remove(key);
                    let policy = Box::new(network_policy(&key.name, &policy));
                    return Some(Change::PutPolicy { name: key.name.clone(), policy });
                }
            }
            _ => {}
        }
        self.unreadable.insert(key.clone(), "its content is not of its kind".to_owned());
        None
    }

    fn put_set(
        &mut self,
        key: &Key,
        kind: SetKind,
        members: &Members,
        difference: &Difference,
        known: bool,
    ) -> Change {
        let name = key.name.clone();
        match difference {
            Difference::Members { put, removed } if known => {
                let put = self.read(key, put.iter().filter_map(|id| members.get(id)));
                let removed = self.read(key, removed.values());
                Change::PutSet { kind, name, replace: false, put, removed }
            }
            _ => {
                self.unreadable.remove(key);
                let put = self.read(key, members.values());
                Change::PutSet { kind, name, replace: true, put, removed: Vec::new() }
            }
        }
    }

    /// Members as the plane knows them. One that cannot be read is left out, and the set reported.
    fn read<'a>(&mut self, key: &Key, members: impl Iterator<Item = &'a SetMember>) -> Vec<Member> {
        let mut read = Vec::with_capacity(members.size_hint().0);
        for member in members {
            match Member::try_from(member) {
                Ok(member) => read.push(member),
                Err(error) => {
                    self.unreadable.insert(key.clone(), error.to_string());
                }
            }
        }
        read
    }

    /// What differs between the Pods that were told and those that there are.
    fn local_changes(&mut self, view: &View<'_>) -> Vec<LocalChange> {
        let View { endpoints, unnamed, .. } = view;
        let gone = self.pods.keys().filter(|pod| endpoints.get(pod).is_none());
        let mut changes: Vec<_> = gone.map(|pod| LocalChange::Remove(workload_id(pod))).collect();
        let named = self.unnamed.keys().filter(|interface| !unnamed.contains_key(*interface));
        changes.extend(named.map(|interface| LocalChange::Remove(unnamed_id(interface))));
        let differs = |endpoint: &&Endpoint| self.pods.get(&endpoint.pod) != Some(*endpoint);
        changes.extend(endpoints.iter().filter(differs).map(|endpoint| LocalChange::Put(workload(endpoint))));
        let new = unnamed.iter().filter(|(name, addresses)| self.unnamed.get(*name) != Some(addresses));
        changes
            .extend(new.map(|(name, addresses)| LocalChange::Put(unnamed_workload(name, addresses, true))));
        let open = host::permits(&self.fail_safes, &view.host.controllers);
        if self.open.as_ref() != Some(&open) {
            changes.push(LocalChange::Host { fail_safes: open.clone() });
            self.open = Some(open);
        }
        if !changes.is_empty() {
            self.pods = endpoints.iter().map(|one| (one.pod.clone(), one.clone())).collect();
            self.unnamed.clone_from(unnamed);
        }
        changes
    }

    /// The kernel does not hold what it should: if it holds nothing at all, Pods are closed meanwhile.
    fn shut(&mut self, view: &View<'_>, outcome: Outcome) -> Outcome {
        if outcome.failure.is_none() {
            return outcome;
        }
        let also = self.hold(view).outcome;
        let failure = outcome.failure.map(|text| match also.failure {
            Some(why) if why != text => format!("{text}; Pods could not be closed either: {why}"),
            _ => text,
        });
        Outcome { failure, ..outcome }
    }

    fn outcome(&mut self, done: Result<kernel::Outcome, PolicyError>) -> Outcome {
        let mut outcome = match done {
            Ok(done) => {
                let error = |error: node_policy::ObjectError| (key_of(&error.object), error.message);
                Outcome {
                    errors: done.errors.into_iter().map(error).collect(),
                    failure: None,
                    problem: done.problem,
                    transactions: done.applied.transactions as u64,
                    longest: done.applied.longest,
                }
            }
            // What was not in force before is not likely to be now.
            Err(error) => Outcome {
                errors: self.last.errors.clone(),
                failure: Some(format!("policies: {}", crate::feed::chain(&error))),
                ..Outcome::default()
            },
        };
        outcome.errors.extend(self.unreadable.clone());
        self.last = outcome.clone();
        outcome
    }
}

impl Part for Policies {
    fn name(&self) -> &'static str {
        "policies"
    }

    fn kinds(&self) -> &'static [ObjectKind] {
        KINDS
    }

    fn apply(&mut self, view: &View<'_>, changed: Changed<'_>) -> Outcome {
        let changes = self.changes(view.held, changed);
        let local = match changed {
            Changed::Some { endpoints: false, .. } => Vec::new(),
            _ => self.local_changes(view),
        };
        let done = self.executor.apply(changes, local);
        let outcome = self.outcome(done);
        self.shut(view, outcome)
    }

    fn mend(&mut self, view: &View<'_>) -> Option<Outcome> {
        let before = self.last.clone();
        let done = self.executor.verify();
        let outcome = self.outcome(done);
        let told = |outcome: &Outcome| (outcome.errors.clone(), outcome.problem.clone());
        (outcome.transactions > 0 || told(&outcome) != told(&before) || outcome.failure.is_some())
            .then(|| self.shut(view, outcome))
    }

    fn hold(&mut self, view: &View<'_>) -> Holding {
        let mut workloads: Vec<Workload> = view.endpoints.iter().map(workload).collect();
        let unnamed = view.unnamed.iter();
        workloads.extend(unnamed.map(|(name, addresses)| unnamed_workload(name, addresses, false)));
        let HostRecord { input, output, controllers } = view.host;
        let closed = (*input || *output).then(|| ClosedHost {
            input: *input,
            output: *output,
            fail_safes: host::permits(&self.fail_safes, controllers),
            inner_prefixes: self.inner.clone(),
        });
        match self.executor.hold(&workloads, closed.as_ref()) {
            Ok(standing) => Holding {
                outcome: Outcome {
                    transactions: standing.applied.transactions as u64,
                    longest: standing.applied.longest,
                    ..Outcome::default()
                },
                left: standing.homes,
            },
            Err(error) => Holding {
                outcome: Outcome {
                    failure: Some(format!("policies: {}", crate::feed::chain(&error))),
                    ..Outcome::default()
                },
                left: None,
            },
        }
    }

    fn survey(&mut self, attached: &Endpoints) -> Option<Vec<Link>> {
        let begins =
            |prefixes: &[String], name: &str| prefixes.iter().any(|prefix| name.starts_with(prefix.as_str()));
        let guard = &self.executor.plane().options().guarded_prefixes;
        let is_a_pods = |link: &kernel_link::Link| {
            link.leads_elsewhere && (begins(guard, &link.name) || begins(&self.prefixes, &link.name))
        };
        let read = || {
            let mut links = kernel_link::Links::open()?;
            let all = links.list()?;
            let is_loose =
                |link: &kernel_link::Link| is_a_pods(link) && attached.by_interface(&link.name).is_none();
            let routes = if all.iter().any(is_loose) { links.routes()? } else { Vec::new() };
            Ok::<_, NetlinkError>((all, routes))
        };
        let (links, routes) =
            read().inspect_err(|error| warn!(%error, "cannot look for the links of Pods")).ok()?;
        let link = |link: kernel_link::Link| Link {
            addresses: routes.iter().filter(|(index, _)| *index == link.index).map(|(_, to)| *to).collect(),
            is_a_pods: is_a_pods(&link),
            guarded: begins(guard, &link.name),
            name: link.name,
        };
        Some(links.into_iter().map(link).collect())
    }

    fn host(&mut self) -> Option<HostView> {
        let (input, output) = self.executor.plane().host_restricted();
        if let Err(error) = self.addresses.read(&self.inner) {
            warn!(%error, "cannot read the node's addresses");
        }
        let observed = self.executor.observed();
        let observed = observed.inspect_err(|error| warn!(%error, "cannot read what was observed"));
        Some(HostView {
            interfaces: self.addresses.interfaces.clone(),
            input,
            output,
            fail_safes: self.fail_safes.told(),
            observed: observed.unwrap_or(Some(0)),
        })
    }

    fn knows_flows(&self) -> bool {
        true
    }

    fn name_flows(&mut self, seen: Vec<Seen>, rules: bool) -> Vec<Named> {
        let workloads = self.pods.values().flat_map(|one| {
            let name: Arc<str> = format!("Pod {}", one.pod).into();
            one.attachment.addresses.iter().map(move |address| (*address, Arc::clone(&name)))
        });
        let plane = self.executor.plane();
        let node = plane.options().node.as_str();
        let kind = if node.contains('/') { "ExternalEntity" } else { "Node" };
        let locals = Locals {
            workloads: workloads.collect(),
            host: self.addresses.all.iter().map(|(_, address)| *address).collect(),
            node: format!("{kind} {node}").into(),
        };
        flows::name(plane, &locals, seen, rules)
    }

    fn alarm(&self) -> Option<OwnedFd> {
        self.executor.kernel().as_fd().try_clone_to_owned().ok()
    }
}

/// The node's addresses, as they were last read.
#[derive(Default)]
struct Addresses {
    links: Option<kernel_link::Links>,
    all: BTreeSet<(u32, IpAddr)>,
    interfaces: Vec<Interface>,
}

impl Addresses {
    /// One dump, and another one of the links if something has changed.
    fn read(&mut self, prefixes: &[String]) -> Result<(), NetlinkError> {
        let mut links = match self.links.take() {
            Some(links) => links,
            None => kernel_link::Links::open()?,
        };
        let all = links.addresses()?;
        if all != self.all {
            let names = links.list()?.into_iter().map(|link| (link.index, link.name)).collect();
            self.interfaces = host::interfaces(&names, &all, prefixes);
            self.all = all;
        }
        self.links = Some(links);
        Ok(())
    }
}

fn plane_kind(key: &Key) -> Option<node_policy::ObjectKind> {
    match ObjectKind::try_from(key.kind).ok()? {
        ObjectKind::AppliedToSet => Some(node_policy::ObjectKind::AppliedToSet),
        ObjectKind::AddressSet => Some(node_policy::ObjectKind::AddressSet),
        ObjectKind::Policy => Some(node_policy::ObjectKind::Policy),
        _ => None,
    }
}

fn set_kind(kind: node_policy::ObjectKind) -> Option<SetKind> {
    match kind {
        node_policy::ObjectKind::AppliedToSet => Some(SetKind::AppliedTo),
        node_policy::ObjectKind::AddressSet => Some(SetKind::Address),
        node_policy::ObjectKind::Policy => None,
    }
}

fn key_of(object: &node_policy::ObjectId) -> Key {
    let kind = match object.kind {
        node_policy::ObjectKind::AppliedToSet => ObjectKind::AppliedToSet,
        node_policy::ObjectKind::AddressSet => ObjectKind::AddressSet,
        node_policy::ObjectKind::Policy => ObjectKind::Policy,
    };
    Key::new(kind, &object.name)
}

fn workload_id(pod: &Pod) -> WorkloadId {
    WorkloadId::pod(pod.namespace.as_str(), pod.name.as_str())
}

/// No Pod is in the namespace without a name.
fn unnamed_id(interface: &str) -> WorkloadId {
    WorkloadId::pod("", interface)
}

fn unnamed_workload(interface: &str, addresses: &BTreeSet<IpAddr>, pending: bool) -> Workload {
    let mut workload = Workload::new(unnamed_id(interface), addresses.iter().copied().collect::<Vec<_>>());
    workload.interface = Some(interface.to_owned());
    workload.pending = pending;
    workload
}

fn workload(endpoint: &Endpoint) -> Workload {
    let mut workload = Workload::new(workload_id(&endpoint.pod), endpoint.attachment.addresses.clone());
    workload.interface = Some(endpoint.attachment.interface.clone());
    workload.pending = endpoint.closed;
    workload
}
