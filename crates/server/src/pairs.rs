//! Some ends against some others: what is open between each two of them, counted, and one of which something is so (pure).

use std::collections::{BTreeMap, HashSet};

use model::{Open, Share, policy::output::MemberKind};
use policy::{
    Engine,
    explain::Endpoint,
    survey::{Party, Survey, TooManyPairs},
};

use crate::explain::Question;

/// One of them.
#[derive(Clone, Debug)]
pub struct End {
    /// As explain takes it.
    pub name: String,
    pub party: Party,
}

/// All Pods and external entities of a namespace that have these labels, by name.
pub fn chosen(engine: &Engine, namespace: &str, labels: &BTreeMap<&str, &str>) -> Vec<End> {
    let workloads = engine.workloads().filter(|workload| {
        *workload.member.namespace == *namespace
            && labels.iter().all(|(key, value)| {
                workload.labels.iter().any(|(known, is)| **known == **key && **is == **value)
            })
    });
    let end = |workload: policy::survey::Workload| {
        let member = &workload.member;
        let prefix = match member.kind {
            MemberKind::Pod => "",
            MemberKind::ExternalEntity => "entity/",
            MemberKind::Node | MemberKind::Service => return None,
        };
        let (namespace, name) = (member.namespace.to_string(), member.name.to_string());
        let text = format!("{prefix}{namespace}/{name}");
        let endpoint = Endpoint::Workload { kind: member.kind, namespace, name };
        Some(End { name: text, party: Party { endpoint, resource: None } })
    };
    let mut chosen: Vec<End> = workloads.filter_map(end).collect();
    chosen.sort_by(|a, b| a.name.cmp(&b.name));
    chosen
}

/// Those at the two sides; those at both sides are asked about once.
pub struct Pairs<'e> {
    ends: Vec<&'e End>,
    pub parties: Vec<Party>,
    /// At the source alone, at both, at the destination alone: places in `ends`.
    parts: [Vec<usize>; 3],
}

impl<'e> Pairs<'e> {
    pub fn new(from: &'e [End], to: &'e [End]) -> Self {
        let [from_names, to_names] =
            [from, to].map(|ends| ends.iter().map(|end| &end.party.endpoint).collect::<HashSet<_>>());
        let mut ends: Vec<&End> = Vec::new();
        let mut parts: [Vec<usize>; 3] = Default::default();
        for end in from {
            parts[usize::from(to_names.contains(&end.party.endpoint))].push(ends.len());
            ends.push(end);
        }
        for end in to.iter().filter(|end| !from_names.contains(&end.party.endpoint)) {
            parts[2].push(ends.len());
            ends.push(end);
        }
        let parties = ends.iter().map(|end| end.party.clone()).collect();
        Self { ends, parties, parts }
    }

    pub fn unknown(&self, survey: &Survey) -> Option<&str> {
        let mut ends = self.ends.iter().enumerate();
        ends.find(|(at, _)| survey.between(*at, *at).is_none()).map(|(_, end)| end.name.as_str())
    }

    /// All pairs of different ends, and those that are such.
    pub fn count(
        &self,
        survey: &Survey,
        is_such: impl Fn(&Open) -> bool,
    ) -> Result<(u64, u64), TooManyPairs> {
        let [from, both, to] = self.parts.each_ref().map(Vec::as_slice);
        let (mut all, mut such) = (0, 0);
        for (open, pairs) in survey.count(&[from, both], &[both, to])?.into_iter().flatten().flatten() {
            all += pairs;
            such += if is_such(&open) { pairs } else { 0 };
        }
        Ok((all, such))
    }

    pub fn example(
        &self,
        survey: &Survey,
        is_such: impl Fn(&Open) -> bool,
    ) -> Option<(&'e End, &'e End, Open)> {
        let [from, both, to] = &self.parts;
        let sources = from.iter().chain(both);
        let pairs = sources.flat_map(|a| both.iter().chain(to).map(move |b| (*a, *b)));
        pairs.filter(|(a, b)| a != b).find_map(|(a, b)| {
            let open = survey.between(a, b).filter(&is_such)?;
            Some((self.ends[a], self.ends[b], open))
        })
    }

    /// A resource that only its permit list keeps closed after a change, where policies do it now: the list is worked out anew then.
    pub fn undone(&self, engine: &Engine, now: &Engine, question: &Question) -> Option<&str> {
        let resource = self.ends.iter().find(|end| end.party.resource.is_some())?;
        let parties: Vec<Party> = self
            .parties
            .iter()
            .map(|party| Party { endpoint: party.endpoint.clone(), resource: None })
            .collect();
        let closed = |engine: &Engine| {
            let survey = engine.survey(&parties);
            self.example(&survey, |open| question.share(open) != Share::None).is_none()
        };
        (closed(now) && !closed(engine)).then_some(resource.name.as_str())
    }
}
