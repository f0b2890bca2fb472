//! The two worked examples of Antrea's design, and a VM that changes who enforces for it.

use model::policy::{
    Kind, Object,
    output::{Change, Update},
};

use crate::harness::{World, entity, in_every_order, namespace, pod};

/// pod1 and pod2 on test-node may reach all VMs of vm-ns.
fn pods_to_vms() -> String {
    [
        namespace("pod-ns", "{name: pod-ns}"),
        namespace("vm-ns", "{name: vm-ns}"),
        pod("pod-ns", "pod1", "{name: pod1}", "test-node", "10.0.0.1"),
        pod("pod-ns", "pod2", "{name: pod2}", "test-node", "10.0.0.2"),
        entity("vm-ns", "vm1", "{name: vm1}", "172.16.0.1", "cloud"),
        entity("vm-ns", "vm2", "{name: vm2}", "172.16.0.2", "cloud"),
        "apiVersion: crd.antrea.io/v1beta1
kind: NetworkPolicy
metadata: {name: pod-policy, namespace: pod-ns, uid: pod-policy-uid}
spec:
  priority: 5
  appliedTo:
  - podSelector:
      matchExpressions:
      - {key: name, operator: In, values: [pod1, pod2]}
  egress:
  - action: Allow
    to:
    - namespaceSelector: {matchLabels: {name: vm-ns}}
      externalEntitySelector: {}
---
"
        .into(),
    ]
    .concat()
}

/// vm1 may be reached from vm2; the cloud enforces.
fn vm_from_vm() -> String {
    [
        namespace("vm-ns", "{name: vm-ns}"),
        entity("vm-ns", "vm1", "{name: vm1}", "172.16.0.1", "cloud"),
        entity("vm-ns", "vm2", "{name: vm2}", "172.16.0.2", "cloud"),
        "apiVersion: crd.antrea.io/v1beta1
kind: NetworkPolicy
metadata: {name: vm-policy, namespace: vm-ns, uid: vm-policy-uid}
spec:
  priority: 5
  appliedTo: [{externalEntitySelector: {matchLabels: {name: vm1}}}]
  ingress:
  - action: Allow
    from: [{externalEntitySelector: {matchLabels: {name: vm2}}}]
---
"
        .into(),
    ]
    .concat()
}

#[test]
fn pods_to_vms_is_for_the_node_of_the_pods_only() {
    let world = World::of(&pods_to_vms());
    let (applied_to, addresses) = world.members_on("test-node");
    assert_eq!(applied_to, ["Pod pod-ns/pod1 on test-node", "Pod pod-ns/pod2 on test-node"]);
    assert_eq!(
        addresses,
        ["ExternalEntity vm-ns/vm1 at [172.16.0.1]", "ExternalEntity vm-ns/vm2 at [172.16.0.2]"]
    );
    assert_eq!(world.on("test-node").policies.keys().collect::<Vec<_>>(), ["pod-policy-uid"]);
    assert_eq!(world.on("cloud"), testkit::policies::state::State::default());
    assert_eq!(world.consumer.state.nodes().into_iter().collect::<Vec<_>>(), ["test-node"]);
}

#[test]
fn vm_from_vm_is_for_the_cloud_only() {
    let world = World::of(&vm_from_vm());
    let (applied_to, addresses) = world.members_on("cloud");
    assert_eq!(applied_to, ["ExternalEntity vm-ns/vm1 on cloud"]);
    assert_eq!(addresses, ["ExternalEntity vm-ns/vm2 at [172.16.0.2]"]);
    assert_eq!(world.on("cloud").policies.len(), 1);
    assert_eq!(world.consumer.state.nodes().into_iter().collect::<Vec<_>>(), ["cloud"]);
}

#[test]
fn a_vm_moves_to_its_own_agent_without_a_gap() {
    let mut world = World::of(&vm_from_vm());
    let Some(Object::ExternalEntity(vm)) = world.objects.get(Kind::ExternalEntity, "vm-ns", "vm1").cloned()
    else {
        panic!("it exists");
    };
    let mut moved = vm;
    moved.spec.external_node = "vm-ns/vm1".into();
    world.put(Object::ExternalEntity(moved));
    // At every step somebody enforces the policy with all it needs (the consumer checks the groups).
    let mut holders = Vec::new();
    while let Some(update) = world.engine.poll_update() {
        world.consumer.take(&update);
        let complete = |node: &&str| {
            let seen = world.consumer.state.on_node(node);
            (seen.policies.len(), seen.applied_to.len(), seen.address.len()) == (1, 1, 1)
        };
        holders.push(["cloud", "vm-ns/vm1"].iter().filter(|node| complete(node)).count());
    }
    assert!(holders.iter().all(|holders| *holders >= 1), "{holders:?}");
    world.drain();
    assert_eq!(world.on("cloud"), testkit::policies::state::State::default());
    assert_eq!(world.members_on("vm-ns/vm1").0, ["ExternalEntity vm-ns/vm1 on vm-ns/vm1"]);
}

#[test]
fn an_external_node_makes_its_entity_and_is_its_own_span() {
    let node = "apiVersion: crd.antrea.io/v1alpha1
kind: ExternalNode
metadata: {name: vm3, namespace: vm-ns, labels: {name: vm1}}
spec: {interfaces: [{ips: [172.16.0.3]}]}
";
    let mut world = World::of(&vm_from_vm());
    world.apply(node);
    assert_eq!(world.members_on("vm-ns/vm3").0, ["ExternalEntity vm-ns/vm3 on vm-ns/vm3"]);
    let updates = world.delete(Kind::ExternalNode, "vm-ns", "vm3");
    let removed =
        |update: &Update| matches!(update, Update::AppliedToGroup(u) if u.change == Change::Updated);
    assert!(updates.iter().any(removed), "{updates:#?}");
    assert_eq!(world.on("vm-ns/vm3"), testkit::policies::state::State::default());
}

#[test]
fn both_examples_hold_in_every_order() {
    in_every_order(&pods_to_vms());
    in_every_order(&vm_from_vm());
    in_every_order(&(pods_to_vms() + &vm_from_vm()));
}
