//! How a group names its members, and the name the group gets from it.
//!
//! In: selectors as they stand in policies and groups. Out: a [`GroupRef`], whose name is the same for every policy
//! that selects the same way, so that policies share groups. Holds: nothing.
//!
//! Names are UUIDs (version 5) of a normal form of the selection, byte for byte those that existing agents and tools
//! have on disk: see `tests::names_are_those_of_existing_clusters`.

use std::{borrow::Cow, fmt::Write};

use model::policy::{
    LabelSelector, Operator,
    antrea::NamespacedName,
    output::{Identifier, MemberKind},
};
use sha1::{Digest, Sha1};
use uuid::{Builder, Uuid};

const NAME_SPACE: Uuid = Uuid::from_u128(0xe4f2_4a48_ca1f_4d5b_819c_ea76_32b2_2115);

/// Where a service account is matched like a label. Pods cannot claim it: the engine overwrites it.
pub(crate) const SERVICE_ACCOUNT_LABEL: &str = "internal.antrea.io/service-account";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupRef<'a> {
    Selection(Selection<'a>),
    /// A Group, or a ClusterGroup when the namespace is empty.
    Named(Cow<'a, NamespacedName>),
    /// Every node, on behalf of one Service.
    Service(Cow<'a, NamespacedName>),
}

/// `selector` absent means every member of that kind in `scope`; the two are named differently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection<'a> {
    pub kind: MemberKind,
    pub scope: Scope<'a>,
    pub selector: Option<Cow<'a, LabelSelector>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope<'a> {
    Namespace(Cow<'a, str>),
    /// Namespaces with these labels. The empty selector takes all, even those whose object is not known yet.
    Matching(Cow<'a, LabelSelector>),
    Everywhere,
}

impl GroupRef<'_> {
    pub fn name(&self) -> Identifier {
        match self {
            GroupRef::Selection(selection) => Identifier::Uuid(name_uuid(&selection.normal_form())),
            GroupRef::Named(name) if name.namespace.is_empty() => Identifier::Text(name.name.as_str().into()),
            GroupRef::Named(name) => Identifier::Text(slashed(name).into()),
            GroupRef::Service(name) => Identifier::Uuid(name_uuid(&slashed(name))),
        }
    }

    pub fn into_owned(self) -> GroupRef<'static> {
        match self {
            GroupRef::Selection(selection) => GroupRef::Selection(selection.into_owned()),
            GroupRef::Named(name) => GroupRef::Named(Cow::Owned(name.into_owned())),
            GroupRef::Service(name) => GroupRef::Service(Cow::Owned(name.into_owned())),
        }
    }
}

/// The UUID of a text among ours: the same text has the same in every cluster.
pub fn name_uuid(text: &str) -> Uuid {
    let digest = Sha1::new().chain_update(NAME_SPACE.as_bytes()).chain_update(text).finalize();
    let (bytes, _) = digest.split_first_chunk().expect("a SHA-1 digest has 20 bytes");
    Builder::from_sha1_bytes(*bytes).into_uuid()
}

fn slashed(name: &NamespacedName) -> String {
    format!("{}/{}", name.namespace, name.name)
}

impl Selection<'_> {
    pub fn into_owned(self) -> Selection<'static> {
        let scope = match self.scope {
            Scope::Namespace(name) => Scope::Namespace(Cow::Owned(name.into_owned())),
            Scope::Matching(selector) => Scope::Matching(Cow::Owned(selector.into_owned())),
            Scope::Everywhere => Scope::Everywhere,
        };
        Selection { kind: self.kind, scope, selector: self.selector.map(|s| Cow::Owned(s.into_owned())) }
    }

    /// Parts in lexical order joined by ` And `. Lexically `eeSelector` < `namespace…` < `nodeSelector` < `podSelector`.
    pub(crate) fn normal_form(&self) -> String {
        let mut text = String::with_capacity(96);
        let member = |text: &mut String, kind: MemberKind, key: &str| {
            if let Some(selector) = self.selector.as_ref().filter(|_| self.kind == kind) {
                separate(text);
                text.push_str(key);
                write_selector(text, selector);
            }
        };
        member(&mut text, MemberKind::ExternalEntity, "eeSelector=");
        match &self.scope {
            Scope::Namespace(name) if !name.is_empty() => {
                separate(&mut text);
                text.push_str("namespace=");
                text.push_str(name);
            }
            Scope::Matching(selector) => {
                separate(&mut text);
                text.push_str("namespaceSelector=");
                write_selector(&mut text, selector);
            }
            Scope::Namespace(_) | Scope::Everywhere => {}
        }
        member(&mut text, MemberKind::Node, "nodeSelector=");
        member(&mut text, MemberKind::Pod, "podSelector=");
        text
    }
}

fn separate(text: &mut String) {
    if !text.is_empty() {
        text.push_str(" And ");
    }
}

fn write_selector(text: &mut String, selector: &LabelSelector) {
    if selector.match_expressions.is_empty() {
        // Labels come in the order of their keys.
        for (i, (key, value)) in selector.match_labels.iter().enumerate() {
            text.extend([if i == 0 { "" } else { "," }, key, "=", value]);
        }
        return;
    }
    let mut terms: Vec<(&str, u8, Cow<'_, [String]>)> = Vec::new();
    terms.extend(
        selector.match_labels.iter().map(|(k, v)| (k.as_str(), 0, Cow::Borrowed(std::slice::from_ref(v)))),
    );
    for requirement in &selector.match_expressions {
        let mut values = requirement.values.clone();
        values.sort_unstable();
        values.dedup();
        terms.push((&requirement.key, operator_rank(&requirement.operator), Cow::Owned(values)));
    }
    terms.sort_unstable();
    for (i, (key, rank, values)) in terms.iter().enumerate() {
        let comma = if i == 0 { "" } else { "," };
        let values = values.join(",");
        let written = match rank {
            0 => write!(text, "{comma}{key}={values}"),
            1 => write!(text, "{comma}{key} in ({values})"),
            2 => write!(text, "{comma}{key} notin ({values})"),
            3 => write!(text, "{comma}{key}"),
            4 => write!(text, "{comma}!{key}"),
            _ => write!(text, "{comma}{key} ? ({values})"),
        };
        written.expect("writing to a string does not fail");
    }
}

/// Equality of `matchLabels` ranks 0.
fn operator_rank(operator: &Operator) -> u8 {
    match operator {
        Operator::In => 1,
        Operator::NotIn => 2,
        Operator::Exists => 3,
        Operator::DoesNotExist => 4,
        Operator::Unknown(_) => 5,
    }
}

#[cfg(test)]
mod tests {
    use model::policy::Requirement;

    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> LabelSelector {
        LabelSelector::of_labels(pairs.iter().copied())
    }

    fn expression(key: &str, operator: Operator, values: &[&str]) -> Requirement {
        Requirement { key: key.into(), operator, values: values.iter().map(|v| (*v).into()).collect() }
    }

    fn name(kind: MemberKind, scope: Scope<'_>, selector: Option<LabelSelector>) -> String {
        GroupRef::Selection(Selection { kind, scope, selector: selector.map(Cow::Owned) }).name().to_string()
    }

    #[test]
    fn names_are_those_of_existing_clusters() {
        let ns = |name: &'static str| Scope::Namespace(Cow::Borrowed(name));
        let entity = |ns, k, v| name(MemberKind::ExternalEntity, ns, Some(labels(&[(k, v)])));
        assert_eq!(
            entity(ns("aws-ns"), "kind.nephe", "virtualmachine"),
            "c98c24e5-c4b9-59d8-8dc7-3c7d9ce96347"
        );
        assert_eq!(
            entity(ns("aws-ns"), "name.nephe", "i-0033eb4a6c846451d"),
            "9938be4e-784d-582b-b22a-d12a82d6fd89"
        );
        assert_eq!(
            entity(ns("azure-ns"), "kind.nephe", "virtualmachine"),
            "ab957ac3-b12c-52ca-a5d1-7aba1ab9c560"
        );
        let pods = |scope, selector| name(MemberKind::Pod, scope, selector);
        assert_eq!(pods(ns("default"), Some(labels(&[]))), "b72edd42-0f24-5ec4-a7a7-ecd0e323b822");
        assert_eq!(
            pods(ns("default"), Some(labels(&[("app", "web")]))),
            "0f4789f6-6f28-5440-8ad4-46d8ac276643"
        );
        let all = Scope::Matching(Cow::Owned(labels(&[])));
        assert_eq!(pods(all, None), "946d5846-ff34-5a8c-ab0b-2c6c271b0778");
        let mut namespaces = labels(&[("scope", "test")]);
        namespaces.match_expressions.push(expression("env", Operator::NotIn, &["staging", "prod"]));
        let mut members = labels(&[("app", "client")]);
        members.match_expressions.push(expression("role", Operator::In, &["db", "app"]));
        let both = pods(Scope::Matching(Cow::Owned(namespaces)), Some(members));
        assert_eq!(both, "37a1095c-e399-5e6d-a600-8e6c98973bf1");
        let nodes = name(MemberKind::Node, Scope::Everywhere, Some(labels(&[("kubernetes.io/os", "linux")])));
        assert_eq!(nodes, "f35996bd-1192-5415-b013-98f442d4793f");
        let service = NamespacedName { namespace: "default".into(), name: "mysvc".into() };
        let service = GroupRef::Service(Cow::Owned(service)).name().to_string();
        assert_eq!(service, "8a32a00a-adca-59ad-b981-82b220921637");
    }

    #[test]
    fn the_order_of_writing_does_not_change_the_name() {
        let one = LabelSelector {
            match_expressions: vec![
                expression("a", Operator::In, &["x", "y"]),
                expression("a", Operator::Exists, &[]),
                expression("b", Operator::DoesNotExist, &[]),
            ],
            ..LabelSelector::default()
        };
        let mut other = one.clone();
        other.match_expressions.reverse();
        other.match_expressions[2].values.reverse();
        let scope = || Scope::Namespace(Cow::Borrowed("n"));
        assert_eq!(name(MemberKind::Pod, scope(), Some(one)), name(MemberKind::Pod, scope(), Some(other)));
    }
}
